/* SPDX-License-Identifier: MIT
 * translator.h - the struct of a translator, and its directory. */
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
    int64_t max_tokens; /* maximum number of tokens of a sentence, including <eos> */
    int64_t max_output; /* maximum number of tokens of a translation, including <eos> */
    struct {            /* search options from the model's files; if a field is zero, attn's own default is used */
        attn_length_rule rule;
        attn_stopping stopping;
        bool force_end, renormalize, sampled, prefixed;
        int64_t beam, no_repeat_ngram, min_len;
        double length_penalty, repetition_penalty;
        double length_factor; /* limit of a translation's length: maximum number of its tokens per token of the line */
        int64_t least_limit;  /* minimum of the limit that follows from length_factor, in tokens */
        int64_t nbanned;
        int32_t *banned;
        /* banned sequences of several tokens; each of them owns its tokens */
        int64_t nsequences;
        attn_token_sequence *sequences;
        char *shortlist; /* path of the lexicon */
        int64_t shortlist_first, shortlist_best;
    } search;
    attn_config *config; /* settings of config.json, unchanged */
    bool marian;         /* true: a model of Marian or MarianMT */
    bool no_bias;        /* true: the checkpoint has no bias of the output layer, so the model's bias is zero */
    /* a translation with a lower log-probability per token is doubtful; -INFINITY: there is no limit */
    double low_score;
};

/* Returns the model, which the translator owns. */
attn_model *attn_translator_model(const attn_translator *translator);
/* Returns the vocabulary of one side, which the translator owns. */
const attn_vocab *attn_translator_vocab(const attn_translator *translator, attn_side side);

/* Search options that the files of a published model give, and hints for the caller. The translator owns
 * `shortlist`. */
typedef struct attn_translator_search {
    attn_translator_options options;
    bool sampled; /* true: the files request sampling, which is not supported */
    /* true: each input line must be followed by a tab and a forced prefix of its translation (Marian's force-decode) */
    bool prefixed;
    const char *shortlist; /* path of the model's lexicon; NULL: there is none */
} attn_translator_search;
attn_translator_search attn_translator_own_search(const attn_translator *translator);

typedef struct attn_translator_score {
    int64_t sentences, references; /* number of translated sentences, and number of their references */
    /* number of sentences that were truncated, because they were longer than the model's maximum */
    int64_t truncated;
    double loss; /* mean loss in nats per target token */
    /* mean of attn_bleu_d2l (k = 2) over all sentences; for each sentence, the reference with the highest value
     * counts */
    double bleu_d2l;
    attn_bleu corpus; /* sacreBLEU's BLEU of the detokenized texts */
    double chrf;      /* sacreBLEU's chrF2 of the detokenized texts */
    double tokens_per_second;
    double words_per_second; /* words of the source sentences per second; words are separated by spaces */
} attn_translator_score;

/* A field that is zero has its default. */
typedef struct attn_translator_judging {
    attn_translator_options search; /* search options; the fields nbest, prefixes and alignments are ignored */
    /* true: a source that occurs in several pairs is translated once, and compared with all targets of these pairs;
     * false: each pair is scored separately */
    bool all_references;
    /* Called for each sentence with its source, its first reference and its translation. May be NULL. */
    void (*sample)(void *user, const char *source, const char *reference, const char *prediction);
    void *user;
} attn_translator_judging;
/* Translates a part of the pairs and scores it. `judging` may be NULL. ATTN_ERROR_ARGUMENT: the part has no pairs.
 * ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_FORMAT, ATTN_ERROR_MEMORY: the data cannot be read. */
attn_status attn_translator_evaluate(attn_translator *translator, const attn_pairs_source *data, attn_split part,
                                     const attn_translator_judging *judging, attn_translator_score *score);

/* Learns a lexicon for the translator's vocabularies from a part of the pairs. *pairs gets the number of pairs of this
 * part; `pairs` may be NULL. The caller must destroy the lexicon before the translator. options->alignments gets one
 * line for each pair of the data, even for pairs outside the part. A line lists the likeliest source word of each
 * target word as "source-target", such as "0-0 1-2". Words are separated by spaces. A word without a source word has no
 * entry. Free the text with attn_bytes_free. ATTN_ERROR_ARGUMENT: the part has no pairs. ATTN_ERROR_NOT_FOUND,
 * ATTN_ERROR_IO, ATTN_ERROR_FORMAT, ATTN_ERROR_MEMORY: the data cannot be read. */
attn_status attn_translator_learn_lexicon(attn_lexicon **lexicon, attn_translator *translator,
                                          const attn_pairs_source *data, attn_split part,
                                          const attn_lexicon_options *options, int64_t *pairs);

/* Returns the built-in phrasebook. It has English and French sentences in lines 'source<TAB>target' (CC0). */
const char *attn_phrasebook(size_t *size);

/* Writes config.json for a new model, and both vocabularies. `settings` are those of the training. */
attn_status attn__translator_write(const attn_model *model, const attn_config *settings, attn_vocab *source,
                                   attn_vocab *target, const char *directory);
/* Writes a vocabulary to the file source.vocab or target.vocab. If its tokens are pieces, the file is source.spm or
 * target.spm. */
attn_status attn__vocab_write(attn_context *context, attn_vocab *vocab, const char *directory, attn_side side);
attn_status attn__vocab_read(attn_vocab **vocab, attn_context *context, const char *directory, attn_side side,
                             attn_vocab_kind kind);
attn_status attn__translator_model(attn_model **model, attn_context *context, const attn_config *settings,
                                   const attn_vocab *source, const attn_vocab *target);

attn_encode_options attn__encoding(const attn_translator *translator);
/* NULL on error. */
attn_tensor *attn__ids_on_tape(attn_tape *tape, int64_t rows, int64_t cols, const int32_t *ids);
/* Normalizes a line in the same way as the training data. The text must be freed with attn__free, even on error. */
attn_status attn__normalized(const attn_translator *translator, const char *line, char **text);
/* Normalizes a line as a vocabulary of words requires. The text must be freed with attn__free, even on error. */
attn_status attn__normalized_words(attn_context *context, const char *line, attn_compat compat, char **text);
/* Sets the text, the tokens and the score of a translation from a hypothesis. The result must be freed with
 * attn_translations_free, even on error. */
attn_status attn__translation_make(const attn_translator *translator, const attn_hypothesis *hypothesis,
                                   attn_translation *result);
/* Free the text with attn__free. */
attn_status attn__detokenized(const attn_translator *translator, const char *tokens, char **text);
/* Free the result with attn__free. */
attn_status attn__reference(const attn_translator *translator, const char *target, char **text);

/* Returns a checksum, which serves to tell files apart. It is not secure against an attacker. */
uint64_t attn__fingerprint(const char *text, size_t size);
const char *attn__pairs_name(const attn_pairs_source *data);
/* *fingerprint gets a checksum of the data; `fingerprint` may be NULL. */
attn_status attn__pairs_read(attn_pairs **pairs, attn_context *context, const attn_pairs_source *data,
                             const attn_pairs_options *options, uint64_t *fingerprint);

/* Translates up to 500 sentences of the pairs, and writes the limit of doubtful translations to low_score.json of the
 * translator's directory. */
attn_status attn__low_score_write(attn_context *context, const char *directory, const attn_pairs *pairs);
/* Reads the limit, or sets it to -INFINITY if the directory has none. */
attn_status attn__low_score_read(double *limit, attn_context *context, const char *directory);

/* Computes the mean loss per target token over all of `batches`, without dropout and label smoothing. */
attn_status attn__translator_loss(attn_model *model, attn_tape *tape, attn_batches *batches, int32_t pad,
                                  bool see_future, double *loss);
/* Returns how many pairs of the data are read before a part is selected. This is the number that the training has
 * read. For the part "all", it is 0, which means no limit. */
int64_t attn__translator_most(const attn_translator *translator, attn_split part);
/* Reads the data and selects a part of it, divided as in the training. `chosen` and `all` must be NULL before. The
 * caller destroys first `chosen` and then `all`, even on error. ATTN_ERROR_ARGUMENT: the part has no pairs. Otherwise
 * returns the errors of reading the data. */
attn_status attn__translator_part(const attn_translator *translator, const attn_pairs_source *data, attn_split part,
                                  attn_pairs **all, attn_pairs **chosen);
/* Translates all pairs and computes all scores except the loss. */
attn_status attn__translator_judge(attn_translator *translator, const attn_pairs *pairs, attn_translator_score *score);
/* The tensors of a batch. attn__batch_on_tape puts them on the tape. It returns false if there is no memory. */
typedef struct attn__batch_tensors {
    attn_tensor *source, *source_lens, *input, *labels;
} attn__batch_tensors;
bool attn__batch_on_tape(attn_tape *tape, const attn_batch *batch, attn__batch_tensors *tensors);

#endif
