/* SPDX-License-Identifier: MIT
 * lines.h - normalizes and encodes lines for a translator. */
#ifndef ATTN_APPS_TRANSLATOR_LINES_H
#define ATTN_APPS_TRANSLATOR_LINES_H

#include "apps/translator/align.h"

/* One encoded line, or sentence. */
typedef struct attn__sentence {
    int64_t line; /* index of the line in the caller's order */
    int32_t *ids;
    int64_t n;      /* number of ids; 0: the line is empty */
    int64_t *words; /* the word to which each token belongs, if alignments are requested */
    int64_t ntokens;
    int32_t *prefix; /* forced prefix of the line's translations */
    int64_t nprefix;
    int64_t most;     /* maximum number of tokens of a translation, including its end token */
    int32_t *allowed; /* tokens that translations may contain, if there is a shortlist */
    int64_t nallowed;
} attn__sentence;

/* Checks that the lexicon in the options is for the translator's vocabularies. Otherwise it returns
 * ATTN_ERROR_ARGUMENT. */
attn_status attn__shortlist_fits(const attn_translator *translator, const attn_translator_options *options);
/* Fills `allowed` of an encoded sentence if there is a shortlist. */
attn_status attn__sentence_allow(const attn_translator *translator, const attn_translator_options *options,
                                 attn__sentence *sentence);

/* Fills in the defaults of the caller's options, which may be NULL. `suppressed` then includes the model's tokens;
 * free it with attn__free. All functions below take such options. */
attn_status attn__search_resolve(const attn_translator *translator, const attn_translator_options *options,
                                 attn_translator_options *resolved);
/* Returns the maximum number of tokens in the translation of an encoded line, including the end token. */
int64_t attn__translation_limit(const attn_translator *translator, const attn_translator_options *options,
                                const attn__sentence *sentence);

/* Encodes the line with the index sentence->line. `result` gets the line's counts and unknown words. Free the
 * sentence on failure too. ATTN_ERROR_ARGUMENT: no translation can have the forced prefix. ATTN_ERROR_MEMORY: there
 * is no memory. */
attn_status attn__sentence_prepare(const attn_translator *translator, const char *line,
                                   const attn_translator_options *options, attn__sentence *sentence,
                                   attn_translation *result);
void attn__sentences_free(attn_context *context, attn__sentence *sentences, int64_t n);

#endif
