/* SPDX-License-Identifier: MIT
 *
 * view.h - the attention of a model on one picture. It has the same form for all architectures, and is drawn as panels
 * or as an interactive page.
 */
#ifndef ATTN_APPS_VIEW_H
#define ATTN_APPS_VIEW_H

#include "attn/classify.h"
#include "attn/models.h"
#include "attn/plot.h"
#include "io/images/image.h"

/* The attention of one layer. The first `before` queries are tokens without a position, such as a class token. The
 * cells of a grid follow, row by row. */
typedef struct attn__block_attention {
    int64_t heads, before, rows, cols;
    /* The kind of the keys. PLACES: the same tokens as the queries, and a grid of key_rows x key_cols cells over the
     * same picture. WINDOW: the key_rows x key_cols cells of the queries' grid around the query. CROSS: the cells of
     * the query's row, and then those of its column. */
    attn_explorer_keys where;
    int64_t key_rows, key_cols;
    bool shifted;         /* true: a window at the border is shifted inwards; false: it extends beyond the border */
    const float *weights; /* weights [heads][queries][keys] */
    float *own;           /* memory of the weights if this struct owns them; NULL: the tape owns them */
    /* The stack to which the layer belongs, and the axis along which it attends. Both are NULL if the model has only
     * one stack. */
    const char *stack, *axis; /* such as "outer" and "column"; the page shows the layers of one stack as one map */
    int64_t above;            /* the query is this number of rows above the chosen cell */
    const attn_image *under;  /* picture drawn under the weights; NULL: the input picture */
    /* text that explains why the layer has no weights for the chosen cell, and so no panel; NULL: it has weights */
    const char *blind;
} attn__block_attention;

typedef struct attn__attention {
    attn_context *context;
    attn_tape *tape; /* owns the outputs of the model, which include most of the weights */
    attn_named_list outputs;
    int64_t n;
    attn__block_attention *blocks;
} attn__attention;

int64_t attn__block_queries(const attn__block_attention *block);
int64_t attn__block_keys(const attn__block_attention *block);
/* Finds the cell of a key, for the query at (row, col). For PLACES, it is a cell of the keys' grid. For other kinds,
 * it is a cell of the queries' grid. Returns false if the key has no position or is outside of the grid. */
bool attn__block_place(const attn__block_attention *block, int64_t row, int64_t col, int64_t key, int64_t *key_row,
                       int64_t *key_col);

/* Creates an attention that has no layers yet, and a tape for the model's inputs. attn__attention_free must be
 * called even if this fails. */
attn_status attn__attention_begin(attn__attention *attention, attn_context *context);
/* Runs a model. Requests all its optional outputs, which are attention weights. */
attn_status attn__attention_run(attn__attention *attention, attn_model *model, const attn_named_list *inputs);
/* Adds a layer whose fields are zero. Returns NULL if there is no memory. */
attn__block_attention *attn__attention_add(attn__attention *attention);
/* Sets the weights of a layer whose keys are of kind CROSS. `weights` are [H,Y,X,Y+X], where the column comes before
 * the row. */
attn_status attn__attention_take_cross(const attn__attention *attention, attn__block_attention *block,
                                       const float *weights);
void attn__attention_free(attn__attention *attention);

/* Computes the attention rollout (Abnar and Zuidema 2020, arXiv:2005.00928) of layers whose queries and keys are the
 * same tokens. It is the product of one matrix per layer: (mean of the weights over the heads + identity) / 2. The
 * caller frees rolled->own. */
attn_status attn__attention_rollout(attn__block_attention *rolled, const attn__attention *attention);

/* Checks the view. If it gives no cell, sets the query to the class token or to the middle cell.
 * ATTN_ERROR_ARGUMENT: the layer, head or cell does not exist. */
attn_status attn__view_check(const attn__attention *attention, const attn_classifier_view *view);
/* Draws `picture`, and panels of the picture under the weights of the layer or head that the view chooses. If the
 * format is ATTN_PLOT_HTML, draws the interactive page of all layers and heads, with the text `about`. Returns the
 * errors of attn__view_check. */
attn_status attn__attention_draw(attn_bytes *drawn, const attn__attention *attention, const attn_classifier_view *view,
                                 const attn_image *picture, const char *title, const char *about,
                                 attn_plot_format format);

/* ------------------------------------------------------------------------ between the files of this folder */

attn_status attn__attention_page(attn_bytes *page, const attn__attention *attention, const attn_image *picture,
                                 const char *title, const char *about);

#endif
