/* SPDX-License-Identifier: MIT
 *
 * Draws the weights of one query over a picture. There is one panel for each layer or for each head.
 */
#include "apps/view/view.h"

#include "base/context.h"

#include <stdio.h>
#include <string.h>

enum { MOST_PANELS = 128 };

typedef struct drawing {
    attn_context *context;
    attn_classifier_view view;
    const attn_image *picture;
    const attn__attention *attention;
    attn__block_attention rolled;
    attn_overlay panels[MOST_PANELS];
    char titles[MOST_PANELS][64];
    float *maps[MOST_PANELS];
    int64_t n;
} drawing;

/* Adds a panel: a map of rows x cols weights, initially zero, over a picture. Returns NULL if there is no memory, or
 * if there are too many panels. */
static attn_overlay *add_panel(drawing *d, const attn_image *picture, int64_t rows, int64_t cols)
{
    if (d->n >= MOST_PANELS) {
        attn__fail(d->context, ATTN_ERROR_ARGUMENT,
                   "the picture would have more than %d panels, the limit; --layer and --head choose some",
                   (int)MOST_PANELS);
        return NULL;
    }
    float *map = attn__alloc_zero(d->context, attn__size_mul((size_t)(rows * cols), sizeof *map));
    if (!map)
        return NULL;
    d->maps[d->n] = map;
    d->panels[d->n] = (attn_overlay){.title = d->titles[d->n],
                                     .width = picture->width,
                                     .height = picture->height,
                                     .channels = picture->channels,
                                     .pixels = picture->pixels,
                                     .rows = rows,
                                     .cols = cols,
                                     .weights = map,
                                     .query_row = -1,
                                     .query_col = -1};
    return &d->panels[d->n++];
}

/* ------------------------------------------------------------------------------------------------- choice */

static attn_status refuse(const attn__attention *a, const char *what, int64_t asked, int64_t most)
{
    return attn__fail(a->context, ATTN_ERROR_ARGUMENT, "%s %lld does not exist: there are %lld, counted from 1", what,
                      (long long)asked, (long long)most);
}

/* Returns the layer whose grid the row and the column of the view refer to. */
static const attn__block_attention *asked(const attn__attention *a, const attn_classifier_view *v)
{
    return &a->blocks[v->layer > 0 ? v->layer - 1 : 0];
}

attn_status attn__view_check(const attn__attention *a, const attn_classifier_view *v)
{
    if (v->layer < 0 || v->layer > a->n)
        return refuse(a, "layer", v->layer, a->n);
    const attn__block_attention *b = asked(a, v);
    if (v->head < 0 || v->head > b->heads)
        return refuse(a, "head", v->head, b->heads);
    if (v->query_row < 0 || v->query_row > b->rows)
        return refuse(a, "the query's row", v->query_row, b->rows);
    if ((v->query_col == 0) != (v->query_row == 0))
        return attn__fail(a->context, ATTN_ERROR_ARGUMENT,
                          "the query has the row %lld and the column %lld; give both, counted from 1, or neither",
                          (long long)v->query_row, (long long)v->query_col);
    if (v->query_col < 0 || v->query_col > b->cols)
        return refuse(a, "the query's column", v->query_col, b->cols);
    if (v->layer == 0 && v->head > 0 && b->before > 0)
        return attn__fail(a->context, ATTN_ERROR_ARGUMENT,
                          "head %lld is given without a layer; give --layer, from 1 to %lld", (long long)v->head,
                          (long long)a->n);
    if (v->layer > 0 && b->blind)
        return attn__fail(a->context, ATTN_ERROR_ARGUMENT, "layer %lld: %s", (long long)v->layer, b->blind);
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------------- panels */

/* Finds the query's cell in the grid of a layer, which may be coarser than the grid of the view. If no cell is
 * chosen, the query is the class token, with the cell (-1, -1), or the cell in the middle. */
static void place_query(const drawing *d, const attn__block_attention *b, attn_overlay *panel)
{
    const attn__block_attention *first = asked(d->attention, &d->view);
    panel->query_rows = b->rows;
    panel->query_cols = b->cols;
    if (d->view.query_row > 0) {
        panel->query_row = (d->view.query_row - 1) * b->rows / first->rows;
        panel->query_col = (d->view.query_col - 1) * b->cols / first->cols;
    } else if (b->before == 0) {
        panel->query_row = b->rows / 2;
        panel->query_col = b->cols / 2;
    }
}

/* Writes the weight of a key to the cells that the key covers in a finer grid. If keys pool 2 x 2 queries and the
 * number of rows or columns is odd, the last row or column is covered by no key. */
static void spread(const attn__block_attention *b, const attn_overlay *panel, float *map, int64_t row, int64_t col,
                   float weight)
{
    int64_t tall = b->where == ATTN_KEYS_PLACES ? b->rows / b->key_rows : 1;
    int64_t wide = b->where == ATTN_KEYS_PLACES ? b->cols / b->key_cols : 1;
    for (int64_t i = 0; i < tall * wide; i++) {
        float *cell = &map[(row * tall + i / wide) * panel->cols + col * wide + i % wide];
        *cell = weight > *cell ? weight : *cell;
    }
}

/* Draws a panel with the mean of the weights of heads [from, to). If keys are a row and a column, their crossing has
 * two weights, and the larger one is drawn. */
static attn_status draw_heads(drawing *d, const attn__block_attention *b, int64_t from, int64_t to, const char *title)
{
    int64_t keys = attn__block_keys(b), queries = attn__block_queries(b);
    attn_overlay *panel = add_panel(d, b->under ? b->under : d->picture, b->rows, b->cols);
    if (!panel)
        return attn__result_status(d->context, panel);
    float *map = d->maps[d->n - 1];
    snprintf(d->titles[d->n - 1], sizeof *d->titles, "%s", title);
    place_query(d, b, panel);
    panel->query_row -= b->above;
    int64_t query = panel->query_row < 0 ? 0 : b->before + panel->query_row * b->cols + panel->query_col;
    for (int64_t key = 0; key < keys; key++) {
        int64_t row, col;
        double sum = 0;
        for (int64_t h = from; h < to; h++)
            sum += (double)b->weights[(h * queries + query) * keys + key];
        if (attn__block_place(b, panel->query_row, panel->query_col, key, &row, &col))
            spread(b, panel, map, row, col, (float)(sum / (double)(to - from)));
    }
    return ATTN_OK;
}

/* Draws one panel for each head of a layer. If the view requests a head, draws only this head. */
static attn_status draw_layer(drawing *d, const attn__block_attention *b, int64_t layer)
{
    attn_status status = ATTN_OK;
    for (int64_t h = 0; h < b->heads && status == ATTN_OK; h++) {
        char title[64];
        if (d->view.head > 0 && d->view.head != h + 1)
            continue;
        if (b->stack)
            snprintf(title, sizeof title, "%s, %s, head %lld", b->stack, b->axis, (long long)h + 1);
        else
            snprintf(title, sizeof title, "layer %lld, head %lld", (long long)layer, (long long)h + 1);
        status = draw_heads(d, b, h, h + 1, title);
    }
    return status;
}

/* Draws one panel for each layer. It shows the mean over the heads, or the head that the view requests. */
static attn_status draw_layers(drawing *d)
{
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < d->attention->n && status == ATTN_OK; i++) {
        const attn__block_attention *b = &d->attention->blocks[i];
        char title[64];
        int64_t from = d->view.head > 0 ? d->view.head - 1 : 0, to = d->view.head > 0 ? d->view.head : b->heads;
        if (b->blind)
            continue;
        int n = snprintf(title, sizeof title, "layer %lld", (long long)i + 1);
        if (b->stack)
            snprintf(title + n, sizeof title - (size_t)n, ", %s, %s", b->stack, b->axis);
        else if (b->heads > 1)
            snprintf(title + n, sizeof title - (size_t)n, to - from > 1 ? ", mean of %lld heads" : ", head %lld",
                     (long long)to - (to - from > 1 ? from : 0));
        status = draw_heads(d, b, from, to, title);
    }
    return status;
}

static attn_status draw_rollout(drawing *d)
{
    char title[64];
    attn_status status = attn__attention_rollout(&d->rolled, d->attention);
    snprintf(title, sizeof title, "rollout of %lld layers", (long long)d->attention->n);
    return status == ATTN_OK ? draw_heads(d, &d->rolled, 0, 1, title) : status;
}

/* The first panel shows only the picture, because weights may hide its dark parts. */
static attn_status make_panels(drawing *d)
{
    const attn__block_attention *b = asked(d->attention, &d->view);
    bool token = b->before > 0 && d->view.query_row == 0;
    attn_overlay *plain = add_panel(d, d->picture, 1, 1);
    if (!plain)
        return ATTN_ERROR_MEMORY;
    plain->weights = NULL;
    snprintf(d->titles[0], sizeof *d->titles, "the picture%s", token ? "" : ", the query framed");
    place_query(d, b, plain);
    if (d->view.layer > 0)
        return draw_layer(d, b, d->view.layer);
    return b->before > 0 ? draw_rollout(d) : draw_layers(d);
}

static attn_status draw_panels(drawing *d, attn_bytes *drawn, const char *title, attn_plot_format format)
{
    attn_status status = make_panels(d);
    attn_overlays all = {.title = title, .n = d->n, .items = d->panels};
    if (status == ATTN_OK)
        status = attn_overlays_render(drawn, d->context, &all, format);
    for (int64_t i = 0; i < d->n; i++)
        attn__free(d->context, d->maps[i]);
    attn__free(d->context, d->rolled.own);
    return status;
}

attn_status attn__attention_draw(attn_bytes *drawn, const attn__attention *attention, const attn_classifier_view *view,
                                 const attn_image *picture, const char *title, const char *about,
                                 attn_plot_format format)
{
    attn_status status = attn__view_check(attention, view);
    if (status != ATTN_OK)
        return status;
    if (format == ATTN_PLOT_HTML)
        return attn__attention_page(drawn, attention, picture, title, about);
    drawing *d = attn__alloc_zero(attention->context, sizeof *d);
    if (!d)
        return ATTN_ERROR_MEMORY;
    d->context = attention->context;
    d->view = *view;
    d->picture = picture;
    d->attention = attention;
    status = draw_panels(d, drawn, title, format);
    attn__free(attention->context, d);
    return status;
}
