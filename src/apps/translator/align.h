/* SPDX-License-Identifier: MIT
 * align.h - word alignments from the decoder's attention weights. */
#ifndef ATTN_APPS_TRANSLATOR_ALIGN_H
#define ATTN_APPS_TRANSLATOR_ALIGN_H

#include "apps/translator/translator.h"
#include "data/token_words.h"

/* A line and one of its translations. */
typedef struct attn__aligned {
    const int32_t *source; /* [nsource], including the end token */
    int64_t nsource, ntokens;
    const int64_t *words; /* [ntokens]: the word that each token of the line belongs to */
    const int32_t *said;  /* tokens of the translation [nsaid], at least one, without the end token */
    int64_t nsaid;
    attn_context *owner; /* owner of the text */
    char **alignment;    /* gets the pairs as text; free with attn__free */
} attn__aligned;

/* Aligns n lines, on a tape that is reset first. ATTN_ERROR_UNSUPPORTED: the decoder has no attention to the source. */
attn_status attn__translator_align(const attn_translator *translator, attn_tape *tape, attn__aligned *aligned,
                                   int64_t n);

#endif
