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

/* The attention of one layer. Its queries are `before` tokens without a position (a class token), followed by the
 * cells of a grid, row by row. */
typedef struct attn__block_attention {
    int64_t heads, before, rows, cols;
    /* The kind of keys. PLACES: the same tokens and a grid of key_rows x key_cols over the same picture. WINDOW:
     * key_rows x key_cols cells of the queries' grid around the query. CROSS: the cells of the query's row, then of
     * its column. */
    attn_explorer_keys where;
    int64_t key_rows, key_cols;
    bool shifted;         /* a window at the border is shifted inwards; otherwise it extends beyond the border */
    const float *weights; /* weights [heads][queries][keys] */
    float *own;           /* memory of the weights that the tape does not own; NULL: the tape owns them */
    /* The layer's stack and its axis, for models with several stacks. Both are NULL for one stack. */
    const char *stack, *axis; /* such as "outer" and "column"; layers of one stack form one map of the page */
    int64_t above;            /* number of rows by which the query is above the chosen cell */
    const attn_image *under;  /* picture drawn under the weights; NULL: the input picture */
    const char *blind; /* why the layer has no weights for the chosen cell and thus no panel; NULL: it has weights */
} attn__block_attention;

typedef struct attn__attention {
    attn_context *context;
    attn_tape *tape; /* owns the model's outputs, which are most of the weights */
    attn_named_list outputs;
    int64_t n;
    attn__block_attention *blocks;
} attn__attention;

int64_t attn__block_queries(const attn__block_attention *block);
int64_t attn__block_keys(const attn__block_attention *block);
/* Finds the cell of a key for the query at (row, col). With PLACES it is a cell of the keys' grid, else of the
 * queries' grid. Returns false if the key has no position or is outside. */
bool attn__block_place(const attn__block_attention *block, int64_t row, int64_t col, int64_t key, int64_t *key_row,
                       int64_t *key_col);

/* Creates an attention without layers, and a tape for the model's inputs. Free it with attn__attention_free, also
 * after a failure. */
attn_status attn__attention_begin(attn__attention *attention, attn_context *context);
/* Runs a model and requests all its optional outputs, which are attention weights. */
attn_status attn__attention_run(attn__attention *attention, attn_model *model, const attn_named_list *inputs);
/* Adds a layer of zeros. Returns NULL without memory. */
attn__block_attention *attn__attention_add(attn__attention *attention);
/* Sets the weights of a layer with CROSS keys, from weights [H,Y,X,Y+X] that have columns before rows. */
attn_status attn__attention_take_cross(const attn__attention *attention, attn__block_attention *block,
                                       const float *weights);
void attn__attention_free(attn__attention *attention);

/* Computes the attention rollout (Abnar and Zuidema 2020, arXiv:2005.00928) of layers whose queries and keys are the
 * same tokens. It is the matrix product over all layers of (mean over heads + identity) / 2. The caller frees
 * rolled->own. */
attn_status attn__attention_rollout(attn__block_attention *rolled, const attn__attention *attention);

/* Checks the view. Without a cell, the query is the class token or the middle cell. ATTN_ERROR_ARGUMENT: the layer,
 * head or cell does not exist. */
attn_status attn__view_check(const attn__attention *attention, const attn_classifier_view *view);
/* Draws `picture`, and panels of the picture under the weights of the layer or head that the view chooses. With
 * ATTN_PLOT_HTML, it draws the interactive page of all layers and heads, with the text `about`. Errors are those of
 * attn__view_check. */
attn_status attn__attention_draw(attn_bytes *drawn, const attn__attention *attention, const attn_classifier_view *view,
                                 const attn_image *picture, const char *title, const char *about,
                                 attn_plot_format format);

/* ------------------------------------------------------------------------ between the files of this folder */

attn_status attn__attention_page(attn_bytes *page, const attn__attention *attention, const attn_image *picture,
                                 const char *title, const char *about);

#endif
