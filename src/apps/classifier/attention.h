/* SPDX-License-Identifier: MIT
 *
 * attention.h - what a classifier attends to on one picture, in one form for all architectures. */
#ifndef ATTN_APPS_CLASSIFIER_ATTENTION_H
#define ATTN_APPS_CLASSIFIER_ATTENTION_H

#include "apps/classifier/classifier.h"

/* One layer.  Queries are `before` tokens without a position (a class token) and then the cells of a grid, row after
 * row. */
typedef struct attn__block_attention {
    int64_t heads, before, rows, cols;
    /* Keys: PLACES, the same tokens and a grid of key_rows x key_cols over the same picture; WINDOW, so many cells of the
     * queries' grid about the query; CROSS, the query's row and then its column. */
    attn_explorer_keys where;
    int64_t key_rows, key_cols;
    bool shifted;         /* a window at the border is pushed inwards; otherwise part of it is outside */
    const float *weights; /* [heads][queries][keys] */
    float *own;           /* the same, where it is not the tape's memory */
} attn__block_attention;

typedef struct attn__attention {
    attn_context *context;
    attn_tape *tape; /* owns most weights */
    attn_named_list outputs;
    int64_t n;
    attn__block_attention *blocks;
    attn_prediction guess;
} attn__attention;

int64_t attn__block_queries(const attn__block_attention *block);
int64_t attn__block_keys(const attn__block_attention *block);
/* The cell of a key, seen from the query in (row, col): in the keys' grid (PLACES) or the queries' own.  False: it has
 * no position, or is outside. */
bool attn__block_place(const attn__block_attention *block, int64_t row, int64_t col, int64_t key, int64_t *key_row,
                       int64_t *key_col);

/* Runs the model on a picture of the classifier's size.  Free with attn__attention_free, also after a failure.
 * ATTN_ERROR_UNSUPPORTED: the architecture gives no weights. */
attn_status attn__attention_of(attn__attention *attention, attn_classifier *classifier, const attn_image *fitted);
void attn__attention_free(attn__attention *attention);

/* Attention rollout (Abnar and Zuidema 2020, arXiv:2005.00928) of layers with the same tokens as queries and as keys: the
 * product of (mean over heads + identity) / 2.  The caller frees rolled->own. */
attn_status attn__attention_rollout(attn__block_attention *rolled, const attn__attention *attention);

/* The page to explore of all layers and heads.  `picture` is drawn under the weights. */
attn_status attn__attention_page(attn_bytes *page, const attn__attention *attention, const attn_image *picture,
                                 const char *title);

#endif
