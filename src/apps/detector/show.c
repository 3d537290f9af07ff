/* SPDX-License-Identifier: MIT
 *
 * Draws a detector's attention: the attention of the decoder's queries for the detected boxes, or that of the encoder's
 * cells.
 */
#include "apps/detector/detector.h"

#include "apps/view/view.h"
#include "base/context.h"

#include <stdio.h>
#include <string.h>

/* SIDE: length of the drawn picture's long side in pixels; MOST: maximum number of panels. */
enum { SIDE = 168, MOST = 40 };

typedef struct drawing {
    attn_detector *d;
    const attn_detector_view *view;
    attn__attention attention;
    attn_detection *found;
    int64_t rows, cols; /* number of rows and columns of the feature map */
    attn_image small;   /* the picture, resized to the drawn size */
    attn_image framed[MOST];
    attn_overlay panels[MOST];
    char titles[MOST][128];
    float *maps; /* weights [panels][rows * cols] */
    int64_t n;
} drawing;

/* Finds the feature map's rows and columns from its number of cells. A backbone of stride 2^k leaves ceil(side / 2^k)
 * rows or columns, because each halving rounds up. k is found by comparing the number of cells. */
static attn_status find_grid(drawing *w, int64_t places, const attn_image *prepared)
{
    for (int64_t stride = 1; stride <= 64; stride *= 2) {
        w->rows = (prepared->height + stride - 1) / stride;
        w->cols = (prepared->width + stride - 1) / stride;
        if (w->rows * w->cols == places)
            return ATTN_OK;
    }
    return attn__fail(w->d->context, ATTN_ERROR_UNSUPPORTED,
                      "the attention maps have %lld positions, which do not form a grid over %lld x %lld pixels",
                      (long long)places, (long long)prepared->width, (long long)prepared->height);
}

static attn_status run(drawing *w, const attn_image *image)
{
    attn_context *context = w->d->context;
    attn_named_list inputs = {.context = context};
    attn_image prepared;
    attn_tensor *mask;
    attn_status status = attn__view_prepare(&w->d->view, context, image, &prepared);
    attn_tensor *x =
        status == ATTN_OK ? attn__view_batch(&w->d->view, w->attention.tape, &prepared, 1, NULL, &mask) : NULL;
    if (status == ATTN_OK)
        status = x ? attn_named_add(&inputs, "x", x) : attn__result_status(context, x);
    if (status == ATTN_OK)
        status = attn__attention_run(&w->attention, w->d->model, &inputs);
    if (status == ATTN_OK)
        status = attn__found_of(context, attn_named_find(&w->attention.outputs, "pred_logits"),
                                attn_named_find(&w->attention.outputs, "pred_boxes"), 0, image->width, image->height,
                                w->found);
    if (status == ATTN_OK)
        status =
            find_grid(w, attn_tensor_length(attn_named_find(&w->attention.outputs, "cross_weights"), -1), &prepared);
    attn_named_clear(&inputs);
    attn_image_free(context, &prepared);
    return status;
}

/* ------------------------------------------------------------------------------------------- the encoder */

static attn_status draw_places(drawing *w, attn_plot_format format, attn_bytes *picture)
{
    const attn_tensor *weights = attn_named_find(&w->attention.outputs, "encoder_weights");
    int64_t heads = attn_tensor_length(weights, 2), places = w->rows * w->cols;
    for (int64_t i = 0; i < attn_tensor_length(weights, 0); i++) {
        attn__block_attention *b = attn__attention_add(&w->attention);
        if (!b)
            return ATTN_ERROR_MEMORY;
        *b = (attn__block_attention){.heads = heads,
                                     .rows = w->rows,
                                     .cols = w->cols,
                                     .key_rows = w->rows,
                                     .key_cols = w->cols,
                                     .weights = (const float *)attn_tensor_data(weights) + i * heads * places * places};
    }
    return attn__attention_draw(picture, &w->attention, &w->view->view, &w->small, "Encoder",
                                "What each place of the picture attends to in the blocks of the encoder.", format);
}

/* --------------------------------------------------------------------------------------------- the boxes */

static attn_status choose(const drawing *w, int64_t blocks, int64_t heads, int64_t *block)
{
    const attn_classifier_view *v = &w->view->view;
    if (v->layer > blocks)
        return attn__fail(w->d->context, ATTN_ERROR_ARGUMENT,
                          "block %lld of the decoder does not exist: there are %lld, counted from 1",
                          (long long)v->layer, (long long)blocks);
    if (v->head > heads)
        return attn__fail(w->d->context, ATTN_ERROR_ARGUMENT,
                          "head %lld of the decoder does not exist: there are %lld, counted from 1", (long long)v->head,
                          (long long)heads);
    *block = v->layer > 0 ? v->layer - 1 : blocks - 1;
    return ATTN_OK;
}

/* Draws a box as a white rectangle with dark rims, because these are visible on any background. */
static void frame(attn_image *image, const attn_detection *f, double scale)
{
    const double at[] = {f->left * scale, f->top * scale, f->right * scale, f->bottom * scale};
    for (int64_t y = 0; y < image->height; y++) {
        for (int64_t x = 0; x < image->width; x++) {
            double inside = (double)x - at[0], other = at[2] - (double)x;
            inside = other < inside ? other : inside;
            other = (double)y - at[1] < at[3] - (double)y ? (double)y - at[1] : at[3] - (double)y;
            inside = other < inside ? other : inside;
            if (inside >= -1 && inside < 3)
                memset(image->pixels + 3 * (y * image->width + x), inside >= 0 && inside < 2 ? 255 : 0, 3);
        }
    }
}

static attn_status add_box(drawing *w, const attn_tensor *weights, int64_t block, double scale)
{
    const attn_classifier_view *v = &w->view->view;
    const attn_detection *f = &w->found[w->n];
    int64_t heads = attn_tensor_length(weights, 2), queries = attn_tensor_length(weights, 3), n = w->rows * w->cols;
    int64_t from = v->head > 0 ? v->head - 1 : 0, to = v->head > 0 ? v->head : heads;
    float *map = w->maps + w->n * n;
    for (int64_t h = from; h < to; h++) {
        const float *row = (const float *)attn_tensor_data(weights) + ((block * heads + h) * queries + f->query) * n;
        for (int64_t i = 0; i < n; i++)
            map[i] += row[i] / (float)(to - from);
    }
    attn_image *framed = &w->framed[w->n];
    attn_status status = attn_image_crop(framed, w->d->context, &w->small, 0, 0, w->small.width, w->small.height);
    if (status != ATTN_OK)
        return status;
    frame(framed, f, scale);
    snprintf(w->titles[w->n], sizeof *w->titles, "%.100s %.2f", w->d->classes.names[f->label], f->score);
    w->panels[w->n] = (attn_overlay){.title = w->titles[w->n],
                                     .width = framed->width,
                                     .height = framed->height,
                                     .channels = 3,
                                     .pixels = framed->pixels,
                                     .rows = w->rows,
                                     .cols = w->cols,
                                     .weights = map,
                                     .query_row = -1,
                                     .query_col = -1};
    w->n++;
    return ATTN_OK;
}

static attn_status draw_boxes(drawing *w, const attn_image *image, attn_plot_format format, attn_bytes *picture)
{
    const attn_tensor *weights = attn_named_find(&w->attention.outputs, "cross_weights");
    int64_t block = 0, heads = attn_tensor_length(weights, 2), most = attn_detector_queries(w->d);
    char title[80];
    attn_status status = choose(w, attn_tensor_length(weights, 0), heads, &block);
    most = most < MOST ? most : MOST;
    if (status == ATTN_OK && w->found[0].score < w->view->threshold)
        status = attn__fail(
            w->d->context, ATTN_ERROR_ARGUMENT,
            "no box has a score of %g or more; the best box, \"%.60s\", has %.3f; a lower threshold shows it",
            w->view->threshold, w->d->classes.names[w->found[0].label], w->found[0].score);
    if (status != ATTN_OK)
        return status;
    w->maps = attn__alloc_zero(w->d->context, attn__size_mul((size_t)(most * w->rows * w->cols), sizeof *w->maps));
    status = w->maps ? ATTN_OK : ATTN_ERROR_MEMORY;
    while (status == ATTN_OK && w->n < most && w->found[w->n].score >= w->view->threshold)
        status = add_box(w, weights, block, (double)w->small.width / (double)image->width);
    int n = snprintf(title, sizeof title, "Decoder, block %lld, ", (long long)block + 1);
    snprintf(title + n, sizeof title - (size_t)n, w->view->view.head > 0 ? "head %lld" : "mean of %lld heads",
             (long long)(w->view->view.head > 0 ? w->view->view.head : heads));
    attn_overlays all = {.title = title, .n = w->n, .items = w->panels};
    return status == ATTN_OK ? attn_overlays_render(picture, w->d->context, &all, format) : status;
}

/* ------------------------------------------------------------------------------------------------- whole */

static attn_status fit(drawing *w, const attn_image *image)
{
    attn_image coloured = {0};
    int64_t longer = image->width > image->height ? image->width : image->height;
    int64_t width = image->width * SIDE / longer, height = image->height * SIDE / longer;
    attn_status status = attn_image_convert(&coloured, w->d->context, image, 3);
    if (status == ATTN_OK)
        status = attn_image_resize(&w->small, w->d->context, &coloured, width > 0 ? width : 1, height > 0 ? height : 1,
                                   ATTN_IMAGE_FILTER_BILINEAR);
    attn_image_free(w->d->context, &coloured);
    return status;
}

static attn_status draw(drawing *w, const attn_image *image, attn_plot_format format, attn_bytes *picture)
{
    attn_context *context = w->d->context;
    bool places = format == ATTN_PLOT_HTML || w->view->view.query_row > 0;
    w->found = attn__alloc(context, attn__size_mul((size_t)attn_detector_queries(w->d), sizeof *w->found));
    attn_status status = w->found ? fit(w, image) : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK)
        status = run(w, image);
    if (status == ATTN_OK)
        status = places ? draw_places(w, format, picture) : draw_boxes(w, image, format, picture);
    for (int64_t i = 0; i < w->n; i++)
        attn_image_free(context, &w->framed[i]);
    attn_image_free(context, &w->small);
    attn__free(context, w->maps);
    attn__free(context, w->found);
    return status;
}

attn_status attn_detector_render_attention(attn_detector *d, const attn_image *image, const attn_detector_view *view,
                                           attn_plot_format format, attn_bytes *picture)
{
    ATTN__CALL(d->context);
    *picture = (attn_bytes){0};
    drawing *w = attn__alloc_zero(d->context, sizeof *w);
    if (!w)
        return ATTN_ERROR_MEMORY;
    w->d = d;
    w->view = view ? view : &(attn_detector_view){0};
    attn_status status = attn__attention_begin(&w->attention, d->context);
    if (status == ATTN_OK)
        status = draw(w, image, format, picture);
    attn__attention_free(&w->attention);
    attn__free(d->context, w);
    return status;
}
