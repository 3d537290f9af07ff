/* SPDX-License-Identifier: MIT
 *
 * align.h - computes word alignments from the decoder's attention weights.
 */
#ifndef ATTN_APPS_TRANSLATOR_ALIGN_H
#define ATTN_APPS_TRANSLATOR_ALIGN_H

#include "apps/translator/translator.h"
#include "data/token_words.h"

/* A line and one of its translations. The words of both are to be aligned. */
typedef struct attn__aligned {
    const int32_t *source; /* [nsource]: tokens of the line, including the end token */
    int64_t nsource, ntokens;
    const int64_t *words; /* [ntokens]: for each token of the line, the number of the word to which it belongs */
    const int32_t *said;  /* [nsaid]: tokens of the translation, without the end token; there must be at least one */
    int64_t nsaid;
    attn_context *owner; /* context that allocates the text */
    char **alignment;    /* gets the aligned pairs as text; free it with attn__free */
} attn__aligned;

/* Runs the model again over n lines and their translations, as it ran while it translated them, and collects all
 * attention weights, as in attn_seq2seq_options. The tape, which owns the weights, is reset first. Of each
 * attn__aligned only the tokens are used. */
attn_status attn__translator_weights(const attn_translator *translator, attn_tape *tape, const attn__aligned *lines,
                                     int64_t n, attn_named_list *weights);

/* The tape is reset first. ATTN_ERROR_UNSUPPORTED: the decoder does not attend to the source. */
attn_status attn__translator_align(const attn_translator *translator, attn_tape *tape, attn__aligned *aligned,
                                   int64_t n);

#endif
