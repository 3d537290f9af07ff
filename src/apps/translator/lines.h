/* SPDX-License-Identifier: MIT
 * lines.h - lines prepared and encoded for a translator. */
#ifndef ATTN_APPS_TRANSLATOR_LINES_H
#define ATTN_APPS_TRANSLATOR_LINES_H

#include "apps/translator/align.h"

/* One line on its way. */
typedef struct attn__sentence {
    int64_t line; /* its place in the caller's order */
    int32_t *ids;
    int64_t n;      /* 0: an empty line */
    int64_t *words; /* if alignments are requested, the word that each token belongs to */
    int64_t ntokens;
    int32_t *prefix; /* the forced prefix of its translations */
    int64_t nprefix;
    int64_t most;     /* tokens of a translation, its end included */
    int32_t *allowed; /* with a shortlist: what its translations are made of */
    int64_t nallowed;
} attn__sentence;

/* ATTN_ERROR_ARGUMENT: a lexicon of other vocabularies. */
attn_status attn__shortlist_fits(const attn_translator *translator, const attn_translator_options *options);
/* Fills in `allowed` of an encoded sentence, where there is a shortlist. */
attn_status attn__sentence_allow(const attn_translator *translator, const attn_translator_options *options,
                                 attn__sentence *sentence);

/* The caller's options (may be NULL) with what holds where they are zero; `suppressed` are the model's too, freed by
 * attn__free.  All below take resolved ones. */
attn_status attn__search_resolve(const attn_translator *translator, const attn_translator_options *options,
                                 attn_translator_options *resolved);
/* The most tokens of an encoded line's translation, its end included. */
int64_t attn__translation_limit(const attn_translator *translator, const attn_translator_options *options,
                                const attn__sentence *sentence);

/* Encodes the line with the number sentence->line; `result` gets what is noted of it.  The sentence is freed on
 * failure too. ATTN_ERROR_ARGUMENT: a beginning that no translation can have; ATTN_ERROR_MEMORY. */
attn_status attn__sentence_prepare(const attn_translator *translator, const char *line,
                                   const attn_translator_options *options, attn__sentence *sentence,
                                   attn_translation *result);
void attn__sentences_free(attn_context *context, attn__sentence *sentences, int64_t n);

#endif
