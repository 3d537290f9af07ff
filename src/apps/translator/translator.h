/* SPDX-License-Identifier: MIT
 * translator.h - what a translator is made of, and its directory. */
#ifndef ATTN_APPS_TRANSLATOR_H
#define ATTN_APPS_TRANSLATOR_H

#include "attn/trainer.h"
#include "attn/translate.h"
#include "apps/run/run.h"
#include "data/sentences.h"

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

/* Its model, which it owns. */
attn_model *attn_translator_model(const attn_translator *translator);
/* The vocabulary of one side, which the translator owns. */
const attn_vocab *attn_translator_vocab(const attn_translator *translator, attn_side side);

/* Search settings of a published model's files: the options that hold where those of a call are zero, and what is
 * the caller's to do.  `shortlist` belongs to the translator. */
typedef struct attn_translator_search {
    attn_translator_options options;
    bool sampled;          /* the files request sampling, which is not done */
    bool prefixed;         /* a tab and what its translation begins with follow each line (Marian's force-decode) */
    const char *shortlist; /* the file of the model's lexicon; NULL: it has none */
} attn_translator_search;
attn_translator_search attn_translator_own_search(const attn_translator *translator);

typedef struct attn_translator_score {
    int64_t sentences, references; /* translated; and what they were compared with */
    int64_t truncated;             /* sentences that were longer than the model takes, whose ends were left out */
    double loss;                   /* nats per target token */
    double bleu_d2l;               /* mean over the sentences of attn_bleu_d2l with k = 2, of the best reference */
    attn_bleu corpus;              /* sacreBLEU's, of detokenized text */
    double chrf;                   /* chrF2, sacreBLEU's, of the same */
    double tokens_per_second;      /* decoded */
    double words_per_second;       /* of the source sentences, between spaces */
} attn_translator_score;

/* How a part is scored.  Zero means the default. */
typedef struct attn_translator_judging {
    attn_translator_options search; /* its `nbest`, `prefixes` and `alignments` are ignored */
    /* A source that is in several pairs is translated once and compared with all their
     * targets; false: each pair is scored by itself. */
    bool all_references;
    /* Called for each sentence, with the first of its references.  May be NULL. */
    void (*sample)(void *user, const char *source, const char *reference, const char *prediction);
    void *user;
} attn_translator_judging;
/* Translates a part of the pairs and scores it.  `judging` may be NULL.  ATTN_ERROR_ARGUMENT: a part that has no pairs; ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_FORMAT,
 * ATTN_ERROR_MEMORY. */
attn_status attn_translator_evaluate(attn_translator *translator, const attn_pairs_source *data, attn_split part,
                                     const attn_translator_judging *judging, attn_translator_score *score);

/* Learns a lexicon of its vocabularies from a part of the pairs; *pairs (may be NULL) gets how many those
 * were.  The caller destroys it, before the translator.
 * options->alignments gets a line for each pair of the data, whichever part was learned from: the likeliest source word
 * of each target word, "0-0 1-2", source-target, words being separated by spaces, and nothing for a word that
 * comes from none (freed by attn_bytes_free).  ATTN_ERROR_ARGUMENT: a part that has no pairs; ATTN_ERROR_NOT_FOUND,
 * ATTN_ERROR_IO, ATTN_ERROR_FORMAT, ATTN_ERROR_MEMORY. */
attn_status attn_translator_learn_lexicon(attn_lexicon **lexicon, attn_translator *translator,
                                          const attn_pairs_source *data, attn_split part,
                                          const attn_lexicon_options *options, int64_t *pairs);

/* The phrasebook that the library carries: English and French, 'source<TAB>target' lines (CC0). */
const char *attn_phrasebook(size_t *size);

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
/* The name of the data in messages. */
const char *attn__pairs_name(const attn_pairs_source *data);
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
