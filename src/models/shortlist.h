/* SPDX-License-Identifier: MIT
 *
 * shortlist.h - translations made of some tokens only: the output layer multiplies the rows of those that any sentence of
 * the batch may use, and each sentence looks at its own, so that its translation does not depend on the others. */
#ifndef ATTN_MODELS_SHORTLIST_H
#define ATTN_MODELS_SHORTLIST_H

#include "attn/models.h"
#include "nn/layers.h"

typedef struct attn__shortlist {
    attn_context *context;
    int64_t vocabulary, n; /* n: tokens of any sentence; 0: no list, all may follow */
    int32_t *tokens;       /* [n], ascending */
    int32_t *columns;      /* for each sentence in turn: the indices of its tokens among them */
    int64_t *first;        /* [batch + 1]: where a sentence's columns begin */
    attn_nn_linear rows;   /* those of the output layer; NULL: not yet copied, or all */
} attn__shortlist;

/* The option `allowed`; without it an empty list.  ATTN_ERROR_ARGUMENT: tokens out of range or order,
 * or without the end or what a translation must begin with; ATTN_ERROR_MEMORY.  After an error it is destroyed too.
 */
attn_status attn__shortlist_create(attn__shortlist *list, attn_context *context, int64_t batch, int64_t vocabulary,
                                   const attn_beam_search_options *options);
void attn__shortlist_destroy(attn__shortlist *list, attn_tape *tape);
/* Logits of the list's tokens (NULL: all) from the output layer.  NULL (noted) on failure. */
attn_tensor *attn__shortlist_output(attn__shortlist *list, attn_tape *tape, const attn_nn_linear *layer,
                                    attn_tensor *x);

#endif
