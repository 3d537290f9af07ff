/* SPDX-License-Identifier: MIT
 * align.h - word alignments from what the decoder attends to. */
#ifndef ATTN_APPS_TRANSLATOR_ALIGN_H
#define ATTN_APPS_TRANSLATOR_ALIGN_H

#include "apps/translator/translator.h"
#include "data/token_words.h"

/* A line and one of its translations. */
typedef struct attn__aligned {
    const int32_t *source; /* [nsource], its end included */
    int64_t nsource, ntokens;
    const int64_t *words; /* [ntokens]: which word each token of the line belongs to */
    const int32_t *said;  /* [nsaid], at least one; without its end */
    int64_t nsaid;
    attn_context *owner; /* of the text */
    char **alignment;    /* gets the pairs as text; freed by attn__free */
} attn__aligned;

/* For each of n, on a tape that is reset first.  ATTN_ERROR_UNSUPPORTED: a model without such attention. */
attn_status attn__translator_align(const attn_translator *translator, attn_tape *tape, attn__aligned *aligned,
                                   int64_t n);

#endif
