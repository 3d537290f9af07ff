/* SPDX-License-Identifier: MIT
 *
 * A picture of what a classifier attends to.  The model runs once with its weights wanted; which outputs it has says how
 * they are drawn.
 */
#include "apps/classifier.h"

#include "base/context.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_PANELS = 128, LARGEST = 336 };

typedef struct drawing {
    attn_classifier *c;
    attn_tape *tape;
    attn_classifier_view view;
    attn_image picture; /* as it is drawn */
    attn_named_list outputs;
    attn_overlay panels[MOST_PANELS];
    char titles[MOST_PANELS][48];
    float *maps[MOST_PANELS];
    int64_t n;
} drawing;

/* A new panel with a map of rows x cols zeros; NULL without memory or room. */
static attn_overlay *add_panel(drawing *d, int64_t rows, int64_t cols)
{
    if (d->n >= MOST_PANELS)
        return NULL;
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
    return attn__fail(d->c->context, ATTN_ARGUMENT, "%s %lld is asked for; there are %lld, from 1", what,
                      (long long)asked, (long long)most);
}

static attn_status check_view(const drawing *d, int64_t layers, int64_t heads, int64_t rows, int64_t cols)
{
    const attn_classifier_view *v = &d->view;
    if (v->layer < 0 || v->layer > layers)
        return refuse(d, "layer", v->layer, layers);
    if (v->head < 0 || v->head > heads)
        return refuse(d, "head", v->head, heads);
    if (v->query_row < 0 || v->query_row > rows)
        return refuse(d, "the query's row", v->query_row, rows);
    if (v->query_col < 0 || v->query_col > cols || (v->query_col == 0) != (v->query_row == 0))
        return refuse(d, "the query's column", v->query_col, cols);
    return ATTN_OK;
}

static int64_t root(int64_t n)
{
    return (int64_t)lround(sqrt((double)n));
}

/* --------------------------------------------------------------------------------------------------- vit */

/* row <- row * (mean over heads of w + identity) / 2, from the last layer to the first: only the class token's row of the
 * product is wanted, so that no matrix is multiplied by another. */
static void roll_out(const float *w, int64_t layers, int64_t heads, int64_t t, double *row, double *next)
{
    memset(row, 0, (size_t)t * sizeof *row);
    row[0] = 1;
    for (int64_t layer = layers - 1; layer >= 0; layer--) {
        for (int64_t j = 0; j < t; j++)
            next[j] = row[j] / 2;
        for (int64_t h = 0; h < heads; h++) {
            const float *map = w + (layer * heads + h) * t * t;
            for (int64_t i = 0; i < t; i++) {
                for (int64_t j = 0; j < t; j++)
                    next[j] += row[i] * (double)map[i * t + j] / (2 * (double)heads);
            }
        }
        memcpy(row, next, (size_t)t * sizeof *row);
    }
}

static attn_status draw_rollout(drawing *d, const float *w, int64_t layers, int64_t heads, int64_t t)
{
    int64_t side = root(t - 1);
    attn_overlay *panel = add_panel(d, side, side);
    double *row = attn__alloc(d->c->context, attn__size_mul(2 * (size_t)t, sizeof *row));
    if (!panel || !row) {
        attn__free(d->c->context, row);
        return ATTN_MEMORY;
    }
    roll_out(w, layers, heads, t, row, row + t);
    for (int64_t i = 1; i < t; i++)
        d->maps[d->n - 1][i - 1] = (float)row[i];
    snprintf(d->titles[d->n - 1], sizeof *d->titles, "rollout of %lld layers", (long long)layers);
    attn__free(d->c->context, row);
    return ATTN_OK;
}

static attn_status draw_head(drawing *d, const float *map, int64_t head, int64_t t)
{
    int64_t side = root(t - 1), query = 0;
    attn_overlay *panel = add_panel(d, side, side);
    if (!panel)
        return attn__fail(d->c->context, ATTN_ARGUMENT, "more than %d panels; --head chooses one", (int)MOST_PANELS);
    if (d->view.query_row > 0) {
        panel->query_row = d->view.query_row - 1;
        panel->query_col = d->view.query_col - 1;
        query = 1 + panel->query_row * side + panel->query_col;
    }
    memcpy(d->maps[d->n - 1], map + query * t + 1, (size_t)(t - 1) * sizeof *map);
    snprintf(d->titles[d->n - 1], sizeof *d->titles, "layer %lld, head %lld", (long long)d->view.layer,
             (long long)head + 1);
    return ATTN_OK;
}

/* weights [L,1,H,1+N,1+N], the class token first. */
static attn_status draw_vit(drawing *d, const attn_tensor *weights)
{
    int64_t layers = attn_tensor_dim(weights, 0), heads = attn_tensor_dim(weights, 2), t = attn_tensor_dim(weights, 3);
    const float *w = attn_tensor_data(weights);
    attn_status status = check_view(d, layers, heads, root(t - 1), root(t - 1));
    if (status != ATTN_OK)
        return status;
    if (d->view.layer == 0 && (d->view.query_row > 0 || d->view.head > 0))
        return attn__fail(d->c->context, ATTN_ARGUMENT, "a head or a query is of one layer: --layer says which, 1 to %lld",
                          (long long)layers);
    if (d->view.layer == 0)
        return draw_rollout(d, w, layers, heads, t);
    for (int64_t h = 0; h < heads && status == ATTN_OK; h++) {
        if (d->view.head == 0 || d->view.head == h + 1)
            status = draw_head(d, w + ((d->view.layer - 1) * heads + h) * t * t, h, t);
    }
    return status;
}

/* ---------------------------------------------------------------------------------------------- non-local */

/* map [1,N,Nk]: the query's grid may be finer than the keys'.  The query's cell is framed in the keys' grid. */
static attn_status draw_block(drawing *d, const attn_tensor *map, int64_t block)
{
    int64_t side = root(attn_tensor_dim(map, 1)), keys = root(attn_tensor_dim(map, 2));
    attn_status status = check_view(d, block + 1, 1, side, side);
    attn_overlay *panel = status == ATTN_OK ? add_panel(d, keys, keys) : NULL;
    if (!panel)
        return status != ATTN_OK ? status : ATTN_MEMORY;
    int64_t row = d->view.query_row ? d->view.query_row - 1 : side / 2;
    int64_t col = d->view.query_col ? d->view.query_col - 1 : side / 2;
    panel->query_row = row * keys / side;
    panel->query_col = col * keys / side;
    memcpy(d->maps[d->n - 1], (const float *)attn_tensor_data(map) + (row * side + col) * keys * keys,
           (size_t)(keys * keys) * sizeof(float));
    snprintf(d->titles[d->n - 1], sizeof *d->titles, "block %lld", (long long)block + 1);
    return ATTN_OK;
}

/* -------------------------------------------------------------------------------------------------- axial */

/* rows [L,Y,H,X,X] and columns [L,X,H,Y,Y] of one picture: the query's row and its column, mean over the heads. */
static attn_status draw_cross(drawing *d, const attn_tensor *rows, const attn_tensor *columns, int64_t layer)
{
    int64_t side = attn_tensor_dim(rows, 1), heads = attn_tensor_dim(rows, 2), cells = side * side;
    attn_overlay *panel = add_panel(d, side, side);
    if (!panel)
        return ATTN_MEMORY;
    int64_t y = d->view.query_row ? d->view.query_row - 1 : side / 2;
    int64_t x = d->view.query_col ? d->view.query_col - 1 : side / 2;
    float *map = d->maps[d->n - 1];
    for (int64_t h = 0; h < heads; h++) {
        if (d->view.head > 0 && d->view.head != h + 1)
            continue;
        const float *row = (const float *)attn_tensor_data(rows) + ((layer * side + y) * heads + h) * cells + x * side;
        const float *col = (const float *)attn_tensor_data(columns) + ((layer * side + x) * heads + h) * cells + y * side;
        for (int64_t i = 0; i < side; i++) {
            map[y * side + i] += row[i];
            map[i * side + x] += col[i];
        }
    }
    panel->query_row = y;
    panel->query_col = x;
    snprintf(d->titles[d->n - 1], sizeof *d->titles, "block %lld", (long long)layer + 1);
    return ATTN_OK;
}

static attn_status draw_axial(drawing *d, const attn_tensor *rows, const attn_tensor *columns)
{
    int64_t layers = attn_tensor_dim(rows, 0), side = attn_tensor_dim(rows, 1);
    attn_status status = check_view(d, layers, attn_tensor_dim(rows, 2), side, side);
    for (int64_t i = 0; i < layers && status == ATTN_OK; i++) {
        if (d->view.layer == 0 || d->view.layer == i + 1)
            status = draw_cross(d, rows, columns, i);
    }
    return status;
}

/* ------------------------------------------------------------------------------------------------ drawing */

static attn_status run_model(drawing *d, const attn_image *fitted)
{
    static const char *const wanted[] = {"weights", "nl_map_1", "nl_map_2", "rows", "columns"};
    attn_classifier *c = d->c;
    const attn_architecture *a = attn_model_architecture(c->model);
    attn_named_list inputs = {.context = c->context};
    int64_t dims[] = {1, c->shape.channels, c->shape.height, c->shape.width};
    attn_tensor *x = attn_tensor_make(d->tape, ATTN_F32, 4, dims, NULL);
    attn_status status = x ? attn_named_add(&inputs, "x", x) : ATTN_MEMORY;
    for (size_t i = 0; status == ATTN_OK && i < sizeof wanted / sizeof *wanted; i++) {
        for (int j = 0; j < a->noutputs && status == ATTN_OK; j++) {
            if (strcmp(a->outputs[j].name, wanted[i]) == 0)
                status = attn_named_add(&d->outputs, wanted[i], NULL);
        }
    }
    if (status == ATTN_OK) {
        attn_image_planes(fitted, c->mean, c->std, attn_tensor_data(x));
        status = attn_model_forward(c->model, d->tape, &inputs, &d->outputs);
    }
    attn_named_clear(&inputs);
    return status;
}

static attn_status make_panels(drawing *d)
{
    const attn_tensor *weights = attn_named_find(&d->outputs, "weights"), *rows = attn_named_find(&d->outputs, "rows");
    const attn_tensor *columns = attn_named_find(&d->outputs, "columns");
    const attn_tensor *maps[] = {attn_named_find(&d->outputs, "nl_map_1"), attn_named_find(&d->outputs, "nl_map_2")};
    if (weights)
        return draw_vit(d, weights);
    if (rows && columns)
        return draw_axial(d, rows, columns);
    if (!maps[0] && !maps[1])
        return attn__fail(d->c->context, ATTN_UNSUPPORTED, "the architecture \"%s\" gives no weights to draw",
                          attn_model_architecture(d->c->model)->name);
    attn_status status = ATTN_OK;
    if (d->view.layer < 0 || d->view.layer > 2)
        return refuse(d, "block", d->view.layer, 2);
    for (int64_t i = 0; i < 2 && status == ATTN_OK; i++) {
        if (maps[i] && (d->view.layer == 0 || d->view.layer == i + 1))
            status = draw_block(d, maps[i], i);
    }
    return status;
}

static void say_guess(const drawing *d, attn_guess *guess)
{
    const float *logits = attn_tensor_data(attn_named_find(&d->outputs, "logits"));
    int64_t best = 0;
    double sum = 0;
    for (int64_t i = 1; i < d->c->nclasses; i++)
        best = logits[i] > logits[best] ? i : best;
    for (int64_t i = 0; i < d->c->nclasses; i++)
        sum += exp((double)logits[i] - (double)logits[best]);
    *guess = (attn_guess){best, 1 / sum};
}

/* Drawn as large as the picture is, up to a limit, in the proportions that the model sees. */
static attn_status prepare(drawing *d, const attn_image *image, attn_image *fitted)
{
    attn_image_shape s = d->c->shape;
    attn_image coloured = {0};
    int64_t zoom = LARGEST / s.width;
    zoom = image->width / s.width < zoom ? image->width / s.width : zoom;
    zoom = image->height / s.height < zoom ? image->height / s.height : zoom;
    zoom = zoom < 1 ? 1 : zoom;
    attn_status status = attn_image_convert(&coloured, d->c->context, image, (int)s.channels);
    if (status == ATTN_OK)
        status = attn_image_fit(fitted, d->c->context, &coloured, s.width, s.height, ATTN_BICUBIC);
    if (status == ATTN_OK)
        status = attn_image_fit(&d->picture, d->c->context, &coloured, s.width * zoom, s.height * zoom, ATTN_BICUBIC);
    attn_image_free(d->c->context, &coloured);
    return status;
}

static attn_status draw(drawing *d, attn_picture_format format, attn_picture *picture, attn_guess *guess)
{
    char title[160];
    attn_status status = make_panels(d);
    if (status != ATTN_OK)
        return status;
    say_guess(d, guess);
    snprintf(title, sizeof title, "%.100s (%.0f %%)", d->c->classes[guess->label], 100 * guess->probability);
    attn_overlays all = {.title = title, .n = d->n, .items = d->panels};
    return attn_overlays_render(picture, d->c->context, &all, format);
}

attn_status attn_classifier_show(attn_classifier *c, const attn_image *image, const attn_classifier_view *view,
                                 attn_picture_format format, attn_picture *picture, attn_guess *guess)
{
    attn_guess said;
    attn_image fitted = {0};
    *picture = (attn_picture){0};
    drawing *d = attn__alloc_zero(c->context, sizeof *d);
    if (!d)
        return ATTN_MEMORY;
    d->c = c;
    d->view = view ? *view : (attn_classifier_view){0};
    d->outputs.context = c->context;
    attn_status status = attn_tape_create(&d->tape, c->context);
    if (status == ATTN_OK)
        status = prepare(d, image, &fitted);
    if (status == ATTN_OK)
        status = run_model(d, &fitted);
    if (status == ATTN_OK)
        status = draw(d, format, picture, guess ? guess : &said);
    for (int64_t i = 0; i < d->n; i++)
        attn__free(c->context, d->maps[i]);
    attn_named_clear(&d->outputs);
    attn_image_free(c->context, &fitted);
    attn_image_free(c->context, &d->picture);
    attn_tape_destroy(d->tape);
    attn__free(c->context, d);
    return status;
}
