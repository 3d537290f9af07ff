/* SPDX-License-Identifier: MIT
 * lines.h - normalizes and encodes lines for a translator. */
#ifndef ATTN_APPS_TRANSLATOR_LINES_H
#define ATTN_APPS_TRANSLATOR_LINES_H

#include "apps/translator/align.h"

/* One line that was encoded for the model, also called a sentence. */
typedef struct attn__sentence {
    int64_t line; /* index of the line in the caller's array */
    int32_t *ids;
    int64_t n; /* number of ids; 0: the line has no tokens */
    /* for each token, the number of the word to which it belongs; set only if alignments are requested */
    int64_t *words;
    int64_t ntokens;
    int32_t *prefix; /* tokens of the forced prefix of the line's translations */
    int64_t nprefix;
    int64_t most;     /* maximum number of tokens of a translation, including its end token */
    int32_t *allowed; /* tokens that a translation may contain; set only if there is a shortlist */
    int64_t nallowed;
} attn__sentence;

/* Checks that the lexicon in the options was made for the translator's vocabularies. If not, returns
 * ATTN_ERROR_ARGUMENT. */
attn_status attn__shortlist_fits(const attn_translator *translator, const attn_translator_options *options);
/* If there is a shortlist, sets the `allowed` tokens of an encoded sentence. */
attn_status attn__sentence_allow(const attn_translator *translator, const attn_translator_options *options,
                                 attn__sentence *sentence);

/* The options of a call. */
typedef struct attn__resolved {
    attn_translator_options options; /* `suppressed` is the array of this struct */
    /* tokens that no translation contains: the model's, the caller's, and sequences of one token */
    int32_t *suppressed;
    int64_t nsuppressed;
    /* the other sequences that no translation contains, and the array of all their tokens */
    attn_token_sequence *sequences;
    int64_t nsequences;
    int32_t *ids;
    int64_t nids;
} attn__resolved;

/* Copies the caller's options, which may be NULL, and fills in the defaults. The functions below need such complete
 * options. `resolved` must be freed even on failure. */
attn_status attn__search_resolve(const attn_translator *translator, const attn_translator_options *options,
                                 attn__resolved *resolved);
/* Fills in what no translation contains, by the options of `resolved` and the model's own settings. */
attn_status attn__suppress(const attn_translator *translator, attn__resolved *resolved);
void attn__resolved_free(const attn_translator *translator, attn__resolved *resolved);
/* Returns the maximum number of tokens in the translation of an encoded line, including the end token. */
int64_t attn__translation_limit(const attn_translator *translator, const attn_translator_options *options,
                                const attn__sentence *sentence);

/* Encodes the line with the index sentence->line. `result` gets the number of tokens and the unknown words of the line.
 * The sentence must be freed even on failure. ATTN_ERROR_ARGUMENT: no translation can have the forced prefix.
 * ATTN_ERROR_MEMORY: there is no memory. */
attn_status attn__sentence_prepare(const attn_translator *translator, const char *line,
                                   const attn_translator_options *options, attn__sentence *sentence,
                                   attn_translation *result);
/* Returns the number of tokens, with padding, of the sources of a batch in which the longest has `longest` tokens. For
 * D2L compatibility it is fixed. */
int64_t attn__source_columns(const attn_translator *translator, int64_t longest);
/* Copies the n ids of a source to a row of a batch, and fills the rest of the row with padding. */
void attn__source_put(const attn_translator *translator, const int32_t *ids, int64_t n, int64_t columns, int32_t *row);
void attn__sentences_free(attn_context *context, attn__sentence *sentences, int64_t n);

/* The tokens of a line and of its translation, and all attention weights between them. */
typedef struct attn__attended {
    int32_t *source; /* [nsource]: tokens that the model reads, without padding; 0: the line has no tokens */
    int64_t nsource;
    int32_t *said; /* [nsaid]: tokens that the decoder produces, with the end token if the translation was not cut */
    int64_t nsaid;
    /* weights as in attn_seq2seq_options, of which the source's keys and queries may include padding */
    attn_named_list weights;
} attn__attended;

/* Translates a line as attn_translator_translate does, and computes what the model attended to. The tape, which owns
 * the weights, is reset. `attended` must be freed even on failure, and `result` only if there was none. The errors are
 * those of attn_translator_translate. */
attn_status attn__translator_attend(attn_translator *translator, attn_tape *tape, const char *line,
                                    const attn_translator_options *options, attn_translation *result,
                                    attn__attended *attended);
void attn__attended_free(attn_context *context, attn__attended *attended);

#endif
