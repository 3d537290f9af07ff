/* SPDX-License-Identifier: MIT
 * lines.h - normalizes and encodes lines for a translator. */
#ifndef ATTN_APPS_TRANSLATOR_LINES_H
#define ATTN_APPS_TRANSLATOR_LINES_H

#include "apps/translator/align.h"

/* One encoded line. */
typedef struct attn__sentence {
    int64_t line; /* index in the caller's order */
    int32_t *ids;
    int64_t n;      /* number of ids; 0: an empty line */
    int64_t *words; /* if alignments are requested, the word that each token belongs to */
    int64_t ntokens;
    int32_t *prefix; /* the forced prefix of its translations */
    int64_t nprefix;
    int64_t most;     /* maximum number of tokens of a translation, including its end */
    int32_t *allowed; /* with a shortlist: the allowed tokens of its translations */
    int64_t nallowed;
} attn__sentence;

/* ATTN_ERROR_ARGUMENT: a lexicon for other vocabularies. */
attn_status attn__shortlist_fits(const attn_translator *translator, const attn_translator_options *options);
/* Fills `allowed` of an encoded sentence if there is a shortlist. */
attn_status attn__sentence_allow(const attn_translator *translator, const attn_translator_options *options,
                                 attn__sentence *sentence);

/* The caller's options (may be NULL) with defaults filled in. `suppressed` includes the model's tokens; free it with
 * attn__free. All functions below take such options. */
attn_status attn__search_resolve(const attn_translator *translator, const attn_translator_options *options,
                                 attn_translator_options *resolved);
/* The maximum number of tokens in the translation of an encoded line, including its end. */
int64_t attn__translation_limit(const attn_translator *translator, const attn_translator_options *options,
                                const attn__sentence *sentence);

/* Encodes the line with the number sentence->line; `result` gets its counts and unknown words. Free the sentence on
 * failure too. ATTN_ERROR_ARGUMENT: a forced prefix that no translation can have; ATTN_ERROR_MEMORY. */
attn_status attn__sentence_prepare(const attn_translator *translator, const char *line,
                                   const attn_translator_options *options, attn__sentence *sentence,
                                   attn_translation *result);
void attn__sentences_free(attn_context *context, attn__sentence *sentences, int64_t n);

#endif
