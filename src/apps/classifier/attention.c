/* SPDX-License-Identifier: MIT
 *
 * Collects the attention of a classifier. The model runs once, and all its optional outputs are requested. The outputs
 * that it has show which kind of attention its layers compute.
 */
#include "apps/classifier/classifier.h"

#include "base/context.h"
#include "config/keys.h"

#include <math.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------ layers */

static int64_t root(int64_t n)
{
    return (int64_t)lround(sqrt((double)n));
}

/* Adds L layers of H heads from weights [L,1,H,1+N,1+N]. The first token is the class token. The N patches follow,
 * row by row. */
static attn_status add_tokens(attn__attention *a, const attn_classifier *c, const attn_tensor *weights)
{
    int64_t heads = attn_tensor_length(weights, 2), t = attn_tensor_length(weights, 3), patch[2] = {1, 1};
    (void)attn__config_sides(attn_model_config(c->model), "patch_size", patch);
    int64_t rows = c->shape.height / patch[0], cols = c->shape.width / patch[1];
    for (int64_t i = 0; i < attn_tensor_length(weights, 0); i++) {
        attn__block_attention *b = attn__attention_add(a);
        if (!b)
            return ATTN_ERROR_MEMORY;
        *b = (attn__block_attention){.heads = heads,
                                     .before = 1,
                                     .rows = rows,
                                     .cols = cols,
                                     .key_rows = rows,
                                     .key_cols = cols,
                                     .weights = (const float *)attn_tensor_data(weights) + i * heads * t * t};
    }
    return ATTN_OK;
}

/* Adds one layer with the weights `map` [1,N,Nk], of N queries and Nk keys. The grid of the keys may be coarser than
 * the grid of the queries. */
static attn_status add_map(attn__attention *a, const attn_tensor *map)
{
    int64_t side = root(attn_tensor_length(map, 1)), keys = root(attn_tensor_length(map, 2));
    attn__block_attention *b = attn__attention_add(a);
    if (!b)
        return ATTN_ERROR_MEMORY;
    *b = (attn__block_attention){
        .heads = 1, .rows = side, .cols = side, .key_rows = keys, .key_cols = keys, .weights = attn_tensor_data(map)};
    return ATTN_OK;
}

/* Adds n layers that attend in windows of k x k pixels, from weights [n,1,H,Y,X,k,k]. */
static attn_status add_windows(attn__attention *a, const attn_tensor *windows, bool shifted)
{
    int64_t heads = attn_tensor_length(windows, 2), rows = attn_tensor_length(windows, 3),
            cols = attn_tensor_length(windows, 4);
    int64_t taps = attn_tensor_length(windows, 5), size = heads * rows * cols * taps * taps;
    for (int64_t i = 0; i < attn_tensor_length(windows, 0); i++) {
        attn__block_attention *b = attn__attention_add(a);
        if (!b)
            return ATTN_ERROR_MEMORY;
        *b = (attn__block_attention){.heads = heads,
                                     .rows = rows,
                                     .cols = cols,
                                     .where = ATTN_KEYS_WINDOW,
                                     .key_rows = taps,
                                     .key_cols = taps,
                                     .shifted = shifted,
                                     .weights = (const float *)attn_tensor_data(windows) + i * size};
    }
    return ATTN_OK;
}

/* Adds L layers that attend along columns and rows, from weights [L,1,H,Y,X,Y+X]. */
static attn_status add_lines(attn__attention *a, const attn_tensor *weights)
{
    int64_t layers = attn_tensor_length(weights, 0), size = attn_tensor_size(weights) / layers;
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < layers && status == ATTN_OK; i++) {
        attn__block_attention *b = attn__attention_add(a);
        if (!b)
            return ATTN_ERROR_MEMORY;
        *b = (attn__block_attention){.heads = attn_tensor_length(weights, 2),
                                     .rows = attn_tensor_length(weights, 3),
                                     .cols = attn_tensor_length(weights, 4),
                                     .where = ATTN_KEYS_CROSS};
        status = attn__attention_take_cross(a, b, (const float *)attn_tensor_data(weights) + i * size);
    }
    return status;
}

/* Joins the weights of one layer over rows [Y,H,X,X] and over columns [X,H,Y,Y] to weights [H][Y X][X + Y]. */
static void cross_into(const attn__block_attention *b, const float *rows, const float *columns, float *to)
{
    for (int64_t i = 0; i < b->heads * b->rows * b->cols; i++) {
        int64_t h = i / (b->rows * b->cols), y = i / b->cols % b->rows, x = i % b->cols;
        float *query = to + i * (b->rows + b->cols);
        memcpy(query, rows + ((y * b->heads + h) * b->cols + x) * b->cols, (size_t)b->cols * sizeof *to);
        memcpy(query + b->cols, columns + ((x * b->heads + h) * b->rows + y) * b->rows, (size_t)b->rows * sizeof *to);
    }
}

/* Adds layers that attend along rows and columns, from weights over rows [L,Y,H,X,X] and over columns [L,X,H,Y,Y] of
 * one picture. */
static attn_status add_crosses(attn__attention *a, const attn_tensor *rows, const attn_tensor *columns)
{
    int64_t height = attn_tensor_length(rows, 1), heads = attn_tensor_length(rows, 2),
            width = attn_tensor_length(rows, 3);
    for (int64_t i = 0; i < attn_tensor_length(rows, 0); i++) {
        attn__block_attention *b = attn__attention_add(a);
        if (!b)
            return ATTN_ERROR_MEMORY;
        *b = (attn__block_attention){.heads = heads, .rows = height, .cols = width, .where = ATTN_KEYS_CROSS};
        size_t n = (size_t)(heads * height * width * (height + width));
        b->own = attn__alloc(a->context, attn__size_mul(n, sizeof *b->own));
        if (!b->own)
            return ATTN_ERROR_MEMORY;
        cross_into(b, (const float *)attn_tensor_data(rows) + i * height * heads * width * width,
                   (const float *)attn_tensor_data(columns) + i * width * heads * height * height, b->own);
        b->weights = b->own;
    }
    return ATTN_OK;
}

static attn_status add_layers(attn__attention *a, const attn_classifier *c)
{
    static const char *const maps[] = {"nl_map_1", "nl_map_2"};
    static const char *const windows[] = {"windows_1", "windows_2", "windows_3", "windows_4"};
    const attn_tensor *weights = attn_named_find(&a->outputs, "weights"), *rows = attn_named_find(&a->outputs, "rows");
    const attn_tensor *columns = attn_named_find(&a->outputs, "columns");
    bool shifted = strcmp(attn_config_text(attn_model_config(c->model), "padding", ""), "shift") == 0;
    attn_status status = !weights                         ? ATTN_OK
                         : attn_tensor_rank(weights) == 6 ? add_lines(a, weights)
                                                          : add_tokens(a, c, weights);
    if (rows && columns)
        status = add_crosses(a, rows, columns);
    for (size_t i = 0; i < sizeof maps / sizeof *maps && status == ATTN_OK; i++) {
        const attn_tensor *map = attn_named_find(&a->outputs, maps[i]);
        status = map ? add_map(a, map) : ATTN_OK;
    }
    for (size_t i = 0; i < sizeof windows / sizeof *windows && status == ATTN_OK; i++) {
        const attn_tensor *of_grid = attn_named_find(&a->outputs, windows[i]);
        status = of_grid ? add_windows(a, of_grid, shifted) : ATTN_OK;
    }
    return status == ATTN_OK && a->n == 0 ? attn__fail(a->context, ATTN_ERROR_UNSUPPORTED,
                                                       "the architecture \"%s\" has no attention weights to draw",
                                                       attn_model_architecture(c->model)->name)
                                          : status;
}

/* ----------------------------------------------------------------------------------------------- running */

static attn_prediction guess_of(const attn_classifier *c, const float *logits)
{
    int64_t best = 0;
    double sum = 0;
    for (int64_t i = 1; i < c->nclasses; i++)
        best = logits[i] > logits[best] ? i : best;
    for (int64_t i = 0; i < c->nclasses; i++)
        sum += exp((double)logits[i] - (double)logits[best]);
    return (attn_prediction){.label = (int32_t)best, .probability = 1 / sum};
}

static attn_status run_model(attn__attention *a, attn_classifier *c, const attn_image *fitted, attn_prediction *guess)
{
    attn_named_list inputs = {.context = c->context};
    int64_t dims[] = {1, c->shape.channels, c->shape.height, c->shape.width};
    attn_tensor *x = attn_tape_tensor(a->tape, ATTN_F32, 4, dims, NULL);
    attn_status status = x ? attn_named_add(&inputs, "x", x) : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK) {
        attn_image_planes(fitted, c->pixels.mean, c->pixels.std, attn_tensor_data(x));
        status = attn__attention_run(a, c->model, &inputs);
    }
    attn_named_clear(&inputs);
    if (status == ATTN_OK) {
        *guess = guess_of(c, attn_tensor_data(attn_named_find(&a->outputs, "logits")));
        status = attn__classifier_check(c->context, guess->probability);
    }
    return status;
}

attn_status attn__classifier_attention(attn__attention *a, attn_classifier *c, const attn_image *fitted,
                                       attn_prediction *guess)
{
    attn_status status = attn__attention_begin(a, c->context);
    if (status == ATTN_OK)
        status = run_model(a, c, fitted, guess);
    return status == ATTN_OK ? add_layers(a, c) : status;
}
