/* SPDX-License-Identifier: MIT
 *
 * shortlist.h - translations restricted to a list of tokens. The output layer multiplies only the rows of tokens that
 * any sentence of the batch may use. Each sentence then uses only its own tokens, so its translation does not depend on
 * the other sentences. */
#ifndef ATTN_MODELS_SHORTLIST_H
#define ATTN_MODELS_SHORTLIST_H

#include "attn/models.h"
#include "nn/layers.h"

typedef struct attn__shortlist {
    attn_context *context;
    int64_t vocabulary, n; /* n: number of tokens that any sentence may use; 0: no list, all tokens are allowed */
    int32_t *tokens;       /* [n], ascending */
    int32_t *columns;      /* for each sentence in turn: the indices of its tokens in the list */
    int64_t *first;        /* [batch + 1]: where each sentence's columns begin */
    attn_nn_linear rows;   /* rows of the output layer for the list; NULL: not yet copied, or all rows */
} attn__shortlist;

/* Makes the list from the option `allowed`; without it an empty list. ATTN_ERROR_ARGUMENT: tokens out of range or
 * order, or without the end token or the forced prefix; ATTN_ERROR_MEMORY. Destroy the list after an error too. */
attn_status attn__shortlist_create(attn__shortlist *list, attn_context *context, int64_t batch, int64_t vocabulary,
                                   const attn_beam_search_options *options);
void attn__shortlist_destroy(attn__shortlist *list, attn_tape *tape);
/* Logits of the list's tokens (NULL: all) from the output layer. NULL (error set) on failure. */
attn_tensor *attn__shortlist_output(attn__shortlist *list, attn_tape *tape, const attn_nn_linear *layer,
                                    attn_tensor *x);

#endif
