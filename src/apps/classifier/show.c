/* SPDX-License-Identifier: MIT
 *
 * A picture of what a classifier attends to: panels of one query's weights over the picture, each of a layer or a head.
 */
#include "apps/classifier/attention.h"

#include "base/context.h"

#include <stdio.h>
#include <string.h>

enum { MOST_PANELS = 128, LARGEST = 336 };

typedef struct drawing {
    attn_classifier *c;
    attn_classifier_view view;
    attn_image picture; /* as it is drawn */
    attn__attention attention;
    attn__block_attention rolled;
    attn_overlay panels[MOST_PANELS];
    char titles[MOST_PANELS][64];
    float *maps[MOST_PANELS];
    int64_t n;
} drawing;

/* A new panel with a map of rows x cols zeros; NULL without memory or room. */
static attn_overlay *add_panel(drawing *d, int64_t rows, int64_t cols)
{
    if (d->n >= MOST_PANELS) {
        attn__fail(d->c->context, ATTN_ERROR_ARGUMENT, "more than %d panels; --head chooses one", (int)MOST_PANELS);
        return NULL;
    }
    float *map = attn__alloc_zero(d->c->context, attn__size_mul((size_t)(rows * cols), sizeof *map));
    if (!map)
        return NULL;
    d->maps[d->n] = map;
    d->panels[d->n] = (attn_overlay){.title = d->titles[d->n],
                                     .width = d->picture.width,
                                     .height = d->picture.height,
                                     .channels = d->picture.channels,
                                     .pixels = d->picture.pixels,
                                     .rows = rows,
                                     .cols = cols,
                                     .weights = map,
                                     .query_row = -1,
                                     .query_col = -1};
    return &d->panels[d->n++];
}

/* ------------------------------------------------------------------------------------------------- choice */

static attn_status refuse(const drawing *d, const char *what, int64_t asked, int64_t most)
{
    return attn__fail(d->c->context, ATTN_ERROR_ARGUMENT, "%s %lld is asked for; there are %lld, from 1", what,
                      (long long)asked, (long long)most);
}

/* The layer whose grid the query is counted in. */
static const attn__block_attention *asked(const drawing *d)
{
    return &d->attention.blocks[d->view.layer > 0 ? d->view.layer - 1 : 0];
}

static attn_status check_view(const drawing *d)
{
    const attn_classifier_view *v = &d->view;
    if (v->layer < 0 || v->layer > d->attention.n)
        return refuse(d, "layer", v->layer, d->attention.n);
    const attn__block_attention *b = asked(d);
    if (v->head < 0 || v->head > b->heads)
        return refuse(d, "head", v->head, b->heads);
    if (v->query_row < 0 || v->query_row > b->rows)
        return refuse(d, "the query's row", v->query_row, b->rows);
    if (v->query_col < 0 || v->query_col > b->cols || (v->query_col == 0) != (v->query_row == 0))
        return refuse(d, "the query's column", v->query_col, b->cols);
    if (v->layer == 0 && v->head > 0 && b->before > 0)
        return attn__fail(d->c->context, ATTN_ERROR_ARGUMENT, "a head is of one layer: --layer says which, 1 to %lld",
                          (long long)d->attention.n);
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------------- panels */

/* The query in a layer's grid, which may be coarser than that of the first one; (-1, -1): the token before the grid. */
static void place_query(const drawing *d, const attn__block_attention *b, attn_overlay *panel)
{
    const attn__block_attention *first = asked(d);
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

/* The cells of a finer grid that a key stands for.  Keys that are 2 x 2 of an odd number of queries leave the last
 * out. */
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

/* The mean over heads [from, to).  Where a row and a column cross, the larger of the two weights counts. */
static attn_status draw_heads(drawing *d, const attn__block_attention *b, int64_t from, int64_t to, const char *title)
{
    int64_t keys = attn__block_keys(b), queries = attn__block_queries(b);
    attn_overlay *panel = add_panel(d, b->rows, b->cols);
    if (!panel)
        return attn_context_status(d->c->context);
    float *map = d->maps[d->n - 1];
    snprintf(d->titles[d->n - 1], sizeof *d->titles, "%s", title);
    place_query(d, b, panel);
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

/* A layer's heads, one panel each, or the requested one. */
static attn_status draw_layer(drawing *d, const attn__block_attention *b, int64_t layer)
{
    attn_status status = ATTN_OK;
    for (int64_t h = 0; h < b->heads && status == ATTN_OK; h++) {
        char title[64];
        if (d->view.head > 0 && d->view.head != h + 1)
            continue;
        snprintf(title, sizeof title, "layer %lld, head %lld", (long long)layer, (long long)h + 1);
        status = draw_heads(d, b, h, h + 1, title);
    }
    return status;
}

/* One panel a layer: the mean of its heads, or the requested one. */
static attn_status draw_layers(drawing *d)
{
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < d->attention.n && status == ATTN_OK; i++) {
        const attn__block_attention *b = &d->attention.blocks[i];
        char title[64];
        int64_t from = d->view.head > 0 ? d->view.head - 1 : 0, to = d->view.head > 0 ? d->view.head : b->heads;
        int n = snprintf(title, sizeof title, "layer %lld", (long long)i + 1);
        if (b->heads > 1)
            snprintf(title + n, sizeof title - (size_t)n, to - from > 1 ? ", mean of %lld heads" : ", head %lld",
                     (long long)to - (to - from > 1 ? from : 0));
        status = draw_heads(d, b, from, to, title);
    }
    return status;
}

static attn_status draw_rollout(drawing *d)
{
    char title[64];
    attn_status status = attn__attention_rollout(&d->rolled, &d->attention);
    snprintf(title, sizeof title, "rollout of %lld layers", (long long)d->attention.n);
    return status == ATTN_OK ? draw_heads(d, &d->rolled, 0, 1, title) : status;
}

/* The picture alone comes first: on a dark one the weights hide what is below them. */
static attn_status make_panels(drawing *d)
{
    attn_status status = check_view(d);
    if (status != ATTN_OK)
        return status;
    attn_overlay *plain = add_panel(d, 1, 1);
    if (!plain)
        return ATTN_ERROR_MEMORY;
    plain->weights = NULL;
    snprintf(d->titles[0], sizeof *d->titles, "the picture%s",
             asked(d)->before > 0 && d->view.query_row == 0 ? "" : ", framed who asks");
    place_query(d, asked(d), plain);
    if (d->view.layer > 0)
        return draw_layer(d, asked(d), d->view.layer);
    return asked(d)->before > 0 ? draw_rollout(d) : draw_layers(d);
}

/* ------------------------------------------------------------------------------------------------ drawing */

/* Drawn as large as the picture is, up to a limit, in the proportions that the model sees. */
static attn_status prepare(drawing *d, const attn_image *image, attn_image *fitted)
{
    attn_image_shape s = d->c->shape;
    attn_image coloured = {0};
    int64_t zoom = LARGEST / s.width;
    zoom = image->width / s.width < zoom ? image->width / s.width : zoom;
    zoom = image->height / s.height < zoom ? image->height / s.height : zoom;
    zoom = zoom < 1 ? 1 : zoom;
    attn__image_fitting large = d->c->pixels.fitting;
    large.side *= zoom;
    attn_status status = attn__classifier_fit(d->c, image, fitted);
    if (status == ATTN_OK)
        status = attn_image_convert(&coloured, d->c->context, image, (int)s.channels);
    if (status == ATTN_OK)
        status = attn__image_fit(&d->picture, d->c->context, &coloured, s.width * zoom, s.height * zoom, &large);
    attn_image_free(d->c->context, &coloured);
    return status;
}

static attn_status draw(drawing *d, attn_plot_format format, attn_bytes *picture)
{
    char title[160];
    const attn_prediction *guess = &d->attention.guess;
    snprintf(title, sizeof title, "%.100s (%.0f %%)", d->c->classes[guess->label], 100 * guess->probability);
    attn_status status = check_view(d);
    if (status != ATTN_OK || format == ATTN_PLOT_HTML)
        return status == ATTN_OK ? attn__attention_page(picture, &d->attention, &d->picture, title) : status;
    status = make_panels(d);
    attn_overlays all = {.title = title, .n = d->n, .items = d->panels};
    return status == ATTN_OK ? attn_overlays_render(picture, d->c->context, &all, format) : status;
}

attn_status attn_classifier_render_attention(attn_classifier *c, const attn_image *image,
                                             const attn_classifier_view *view, attn_plot_format format,
                                             attn_bytes *picture, attn_prediction *guess)
{
    attn__call_begin(c->context);
    attn_image fitted = {0};
    *picture = (attn_bytes){0};
    if (ATTN__CHECK_RESERVED(c->context, view, attn_classifier_view) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    drawing *d = attn__alloc_zero(c->context, sizeof *d);
    if (!d)
        return ATTN_ERROR_MEMORY;
    d->c = c;
    d->view = view ? *view : (attn_classifier_view){0};
    attn_status status = prepare(d, image, &fitted);
    if (status == ATTN_OK) {
        status = attn__attention_of(&d->attention, c, &fitted);
        if (status == ATTN_OK)
            status = draw(d, format, picture);
        if (guess)
            *guess = d->attention.guess;
        attn__attention_free(&d->attention);
    }
    for (int64_t i = 0; i < d->n; i++)
        attn__free(c->context, d->maps[i]);
    attn__free(c->context, d->rolled.own);
    attn_image_free(c->context, &fitted);
    attn_image_free(c->context, &d->picture);
    attn__free(c->context, d);
    return status;
}
