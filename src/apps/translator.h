/* SPDX-License-Identifier: MIT
 * translator.h - what a translator is made of, and its directory. */
#ifndef ATTN_APPS_TRANSLATOR_H
#define ATTN_APPS_TRANSLATOR_H

#include "attn/translate.h"

struct attn_translator {
    attn_context *context;
    attn_model *model;
    attn_vocab *source, *target;
    attn_compat compat;
    int64_t max_tokens; /* of a sentence, <eos> included */
    int64_t max_output; /* of a translation, the same */
    struct {            /* how it is searched if the caller sets no option; zero: attn's own way */
        attn_length_rule rule;
        attn_stopping stopping;
        bool force_end, renormalize, sampled, prefixed;
        int64_t beam, no_repeat_ngram, min_len;
        double length_penalty, repetition_penalty;
        double length_factor; /* most tokens of a translation for each one of its line */
        int64_t least_limit;  /* but not less than so many */
        int64_t nbanned;
        int32_t *banned;
        char *shortlist; /* a lexicon's file */
        int64_t shortlist_first, shortlist_best;
    } search;
    attn_config *config; /* config.json as it is */
    bool no_bias;        /* the checkpoint had no bias of the output layer: it is zeros */
};

/* config.json of a new model trained with `settings`, and both vocabularies. */
attn_status attn__translator_write(const attn_model *model, const attn_config *settings, attn_vocab *source,
                                   attn_vocab *target, const char *directory);
/* source.vocab or target.vocab; of pieces source.spm or target.spm. */
attn_status attn__vocab_write(attn_context *context, attn_vocab *vocab, const char *directory, attn_side side);
attn_status attn__vocab_read(attn_vocab **vocab, attn_context *context, const char *directory, attn_side side,
                             attn_vocab_kind kind);
/* The model that `settings` describe, for these vocabularies, with fresh parameters. */
attn_status attn__translator_model(attn_model **model, attn_context *context, const attn_config *settings,
                                   const attn_vocab *source, const attn_vocab *target);

attn_encode_options attn__encoding(const attn_translator *translator);
/* NULL on error. */
attn_tensor *attn__ids_on_tape(attn_tape *tape, int64_t rows, int64_t cols, const int32_t *ids);
/* A line prepared as the training data was; freed by attn__free, on error too. */
attn_status attn__normalized(const attn_translator *translator, const char *line, char **text);
/* The words of a line as vocabularies of words have them; freed by attn__free, on error too. */
attn_status attn__normalized_words(attn_context *context, const char *line, attn_compat compat, char **text);
/* Text, tokens and score of a hypothesis; freed by attn_translations_free, on error too. */
attn_status attn__translation_make(const attn_translator *translator, const attn_hypothesis *hypothesis,
                                   attn_translation *result);
/* The detokenized text of tokens; freed by attn__free. */
attn_status attn__detokenized(const attn_translator *translator, const char *tokens, char **text);
/* The target side of a pair of the data, likewise. */
attn_status attn__reference(const attn_translator *translator, const char *target, char **text);

/* Tells one file's contents from another's; not a defence against anyone. */
uint64_t attn__fingerprint(const char *text, size_t size);
/* `fingerprint` may be NULL. */
attn_status attn__pairs_read(attn_pairs **pairs, attn_context *context, const attn_pairs_source *data,
                             const attn_pairs_options *options, uint64_t *fingerprint);

/* Mean loss per target token of `batches` (from their start), without dropout or smoothing. */
attn_status attn__translator_loss(attn_model *model, attn_tape *tape, attn_batches *batches, int32_t pad,
                                  bool see_future, double *loss);
/* How many pairs of the data a part is taken from: as many as the training read; 0, no limit, for all. */
int64_t attn__translator_most(const attn_translator *translator, attn_split part);
/* A part of the pairs as the translator's training divided them.  Both are destroyed by the caller, the part
 * first, on error too; they begin as NULL.  ATTN_ERROR_ARGUMENT: a part that has no pairs; else as reading fails. */
attn_status attn__translator_part(const attn_translator *translator, const attn_pairs_source *data, attn_split part,
                                  attn_pairs **all, attn_pairs **chosen);
/* Translates all pairs and fills in what translations are scored by: all but the loss. */
attn_status attn__translator_judge(attn_translator *translator, const attn_pairs *pairs, attn_translator_score *score);
/* The three tensors of a batch on the tape; false if there is no memory. */
typedef struct attn__batch_tensors {
    attn_tensor *source, *source_lens, *input, *labels;
} attn__batch_tensors;
bool attn__batch_on_tape(attn_tape *tape, const attn_batch *batch, attn__batch_tensors *tensors);

#endif
