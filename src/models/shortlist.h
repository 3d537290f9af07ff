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
    /* size of the vocabulary; n: number of tokens in the list (0: no list, all tokens are allowed) */
    int64_t vocabulary, n;
    int32_t *tokens;     /* [n], ascending */
    int32_t *columns;    /* index in the list of each token of each sentence, sentence by sentence */
    int64_t *first;      /* [batch + 1]: index in `columns` at which each sentence begins */
    attn_nn_linear rows; /* rows of the output layer for the list; NULL: not yet copied, or not needed */
} attn__shortlist;

/* Makes the list from the option `allowed`. Without this option the list is empty. ATTN_ERROR_ARGUMENT: tokens are
 * out of range or order, or lack the end token or the forced prefix. ATTN_ERROR_MEMORY: there is no memory. Destroy
 * the list even after an error. */
attn_status attn__shortlist_create(attn__shortlist *list, attn_context *context, int64_t batch, int64_t vocabulary,
                                   const attn_beam_search_options *options);
void attn__shortlist_destroy(attn__shortlist *list, attn_tape *tape);
/* Returns the output layer's logits for the tokens of the list, or for all tokens if the list is NULL or empty. On
 * failure it sets the error and returns NULL. */
attn_tensor *attn__shortlist_output(attn__shortlist *list, attn_tape *tape, const attn_nn_linear *layer,
                                    attn_tensor *x);

#endif
