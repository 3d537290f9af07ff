/* SPDX-License-Identifier: MIT
 *
 * view.h - what a model attends to on one picture, in one form for all architectures, as panels over the picture and as
 * a page to explore. */
#ifndef ATTN_APPS_VIEW_H
#define ATTN_APPS_VIEW_H

#include "attn/classify.h"
#include "attn/models.h"
#include "attn/plot.h"
#include "io/images/image.h"

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
    /* For models of several stacks; zeros: there is one. */
    const char *stack, *axis; /* "outer", "column": layers of one stack are a map of the page */
    int64_t above;            /* the query's row is so many rows above that of the chosen place */
    const attn_image *under;  /* drawn under the weights; NULL: the picture */
    const char *blind; /* why the chosen place gets nothing from the layer, which then has no panel; NULL: it does */
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
/* The cell of a key, seen from the query in (row, col): in the keys' grid (PLACES) or the queries' own.  False: it has
 * no position, or is outside. */
bool attn__block_place(const attn__block_attention *block, int64_t row, int64_t col, int64_t key, int64_t *key_row,
                       int64_t *key_col);

/* An attention of no layers, with a tape for the inputs of the model.  Free it with attn__attention_free, also after a
 * failure. */
attn_status attn__attention_begin(attn__attention *attention, attn_context *context);
/* Runs a model with all of its optional outputs, which are weights. */
attn_status attn__attention_run(attn__attention *attention, attn_model *model, const attn_named_list *inputs);
/* A new layer, of zeros; NULL without memory. */
attn__block_attention *attn__attention_add(attn__attention *attention);
/* Gives a layer, whose keys are a CROSS, its weights [H,Y,X,Y+X], the column before the row. */
attn_status attn__attention_take_cross(const attn__attention *attention, attn__block_attention *block,
                                       const float *weights);
void attn__attention_free(attn__attention *attention);

/* Attention rollout (Abnar and Zuidema 2020, arXiv:2005.00928) of layers with the same tokens as queries and as keys: the
 * product of (mean over heads + identity) / 2.  The caller frees rolled->own. */
attn_status attn__attention_rollout(attn__block_attention *rolled, const attn__attention *attention);

/* ATTN_ERROR_ARGUMENT: there is no such layer, head or cell.  The one cell may be left out: the class token or the
 * middle. */
attn_status attn__view_check(const attn__attention *attention, const attn_classifier_view *view);
/* `picture`, and panels with it under the weights of the layer or head that the view chooses; ATTN_PLOT_HTML: the page
 * to explore of all layers and heads, with the text `about`.  Errors as of attn__view_check. */
attn_status attn__attention_draw(attn_bytes *drawn, const attn__attention *attention, const attn_classifier_view *view,
                                 const attn_image *picture, const char *title, const char *about,
                                 attn_plot_format format);

/* ------------------------------------------------------------------------ between the files of this folder */

attn_status attn__attention_page(attn_bytes *page, const attn__attention *attention, const attn_image *picture,
                                 const char *title, const char *about);

#endif
