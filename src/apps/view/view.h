/* SPDX-License-Identifier: MIT
 *
 * view.h - the attention of a model on one picture, in one form for all architectures, drawn as panels or as an
 * interactive page. */
#ifndef ATTN_APPS_VIEW_H
#define ATTN_APPS_VIEW_H

#include "attn/classify.h"
#include "attn/models.h"
#include "attn/plot.h"
#include "io/images/image.h"

/* One layer. Queries are `before` tokens without a position (a class token), followed by the cells of a grid, row by
 * row. */
typedef struct attn__block_attention {
    int64_t heads, before, rows, cols;
    /* Keys. PLACES: the same tokens and a grid of key_rows x key_cols over the same picture. WINDOW: key_rows x
     * key_cols cells of the queries' grid around the query. CROSS: the query's row, then its column. */
    attn_explorer_keys where;
    int64_t key_rows, key_cols;
    bool shifted;         /* a window at the border is shifted inwards; otherwise part of it is outside */
    const float *weights; /* weights [heads][queries][keys] */
    float *own;           /* memory of the weights if the tape does not own them */
    /* For models with several stacks; zeros: one stack. */
    const char *stack, *axis; /* "outer", "column": layers of one stack form one map of the page */
    int64_t above;            /* the query's row is this many rows above the chosen cell */
    const attn_image *under;  /* picture drawn under the weights; NULL: the input picture */
    const char *blind; /* why the layer has no weights for the chosen cell, and thus no panel; NULL: it has weights */
} attn__block_attention;

typedef struct attn__attention {
    attn_context *context;
    attn_tape *tape; /* owns most weights */
    attn_named_list outputs;
    int64_t n;
    attn__block_attention *blocks;
} attn__attention;

int64_t attn__block_queries(const attn__block_attention *block);
int64_t attn__block_keys(const attn__block_attention *block);
/* The cell of a key, for the query at (row, col): in the keys' grid (PLACES) or in the queries' own grid. False: the
 * key has no position, or is outside. */
bool attn__block_place(const attn__block_attention *block, int64_t row, int64_t col, int64_t key, int64_t *key_row,
                       int64_t *key_col);

/* An attention without layers, with a tape for the inputs of the model. Free it with attn__attention_free, also after a
 * failure. */
attn_status attn__attention_begin(attn__attention *attention, attn_context *context);
/* Runs a model with all its optional outputs, which are attention weights. */
attn_status attn__attention_run(attn__attention *attention, attn_model *model, const attn_named_list *inputs);
/* A new layer of zeros; NULL without memory. */
attn__block_attention *attn__attention_add(attn__attention *attention);
/* Gives weights [H,Y,X,Y+X], columns before rows, to a layer whose keys are a CROSS. */
attn_status attn__attention_take_cross(const attn__attention *attention, attn__block_attention *block,
                                       const float *weights);
void attn__attention_free(attn__attention *attention);

/* Computes the attention rollout (Abnar and Zuidema 2020, arXiv:2005.00928) of layers whose queries and keys are the
 * same tokens: the product of (mean over heads + identity) / 2. The caller frees rolled->own. */
attn_status attn__attention_rollout(attn__block_attention *rolled, const attn__attention *attention);

/* ATTN_ERROR_ARGUMENT: no such layer, head or cell. Without a cell, the query is the class token or the middle cell. */
attn_status attn__view_check(const attn__attention *attention, const attn_classifier_view *view);
/* Draws `picture`, and panels of it under the weights of the layer or head that the view chooses. With ATTN_PLOT_HTML,
 * draws the interactive page of all layers and heads, with the text `about`. Errors as of attn__view_check. */
attn_status attn__attention_draw(attn_bytes *drawn, const attn__attention *attention, const attn_classifier_view *view,
                                 const attn_image *picture, const char *title, const char *about,
                                 attn_plot_format format);

/* ------------------------------------------------------------------------ between the files of this folder */

attn_status attn__attention_page(attn_bytes *page, const attn__attention *attention, const attn_image *picture,
                                 const char *title, const char *about);

#endif
