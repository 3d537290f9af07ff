/* SPDX-License-Identifier: MIT
 *
 * Draws images from the axial transformer. The encoder runs once per slice, the outer decoder once per row, and the
 * inner decoder once per pixel. Unlike in the paper's sampler, nothing is computed twice. The outer decoder computes
 * only the new row, and its masked column attention reads the rows above from a KV cache. The inner decoder computes
 * only the new pixel, and reads the pixels to the left from a KV cache. An image of N pixels therefore costs about one
 * evaluation of the model. A sampler that evaluates the whole model for each pixel needs N evaluations. */
#include "models/axial_transformer.h"

#include "base/context.h"
#include "base/rng.h"
#include "tensor/number.h"
#include "tensor/packed_weights.h"

#include <math.h>
#include <string.h>

typedef struct sampler {
    const attn__axial_transformer *m;
    attn_model *model;
    attn_tape *tape;
    attn_context *context;
    attn_axial_transformer_options options;
    attn_tensor *x;
    int64_t batch, rows_done;
    /* KV caches of the masked blocks of the outer and of the inner decoder */
    attn_nn_kv_cache outer[ATTN__MAX_BLOCKS], inner[ATTN__MAX_BLOCKS];
} sampler;

/* A position in an image: slice, row and column. The sampler draws this position in all images of the batch at the
 * same time. */
typedef struct place {
    int64_t slice, y, x;
} place;

static int64_t index_of(const sampler *s, int64_t image, place p)
{
    return ((image * s->m->slices + p.slice) * s->m->height + p.y) * s->m->width + p.x;
}

static bool is_known(const sampler *s, int64_t index)
{
    return s->options.known && ((const uint8_t *)attn_tensor_data(s->options.known))[index] != 0;
}

static bool rows_are_known(const sampler *s, int64_t slice, int64_t from, int64_t to)
{
    bool known = s->options.known != NULL;
    for (int64_t b = 0; b < s->batch; b++) {
        int64_t first = index_of(s, b, (place){slice, from, 0});
        for (int64_t i = 0; i < (to - from) * s->m->width && known; i++)
            known = is_known(s, first + i);
    }
    return known;
}

/* Returns the noise of one level. It is Gumbel noise -log(-log u), where u is uniform in (0, 1). The argmax of
 * logits plus Gumbel noise is a draw from the softmax of the logits. */
static double noise_at(const sampler *s, int64_t index, attn__rng *rng, int64_t level)
{
    if (s->options.noise)
        return attn__number(s->options.noise, index * s->m->levels + level);
    return -log(-log(attn__rng_uniform(rng)));
}

/* Draws element `index` of x. Its K logits begin at element `first` of `logits`. Returns false and sets an error if
 * the logits do not define probabilities. */
static bool draw(const sampler *s, const attn_tensor *logits, int64_t first, int64_t index)
{
    attn__rng rng = {.seed = s->options.seed, .stream = (uint64_t)index};
    double best = -INFINITY, temperature = s->options.temperature;
    int32_t chosen = 0;
    for (int64_t k = 0; k < s->m->levels; k++) {
        double score = attn__number(logits, first + k) / temperature + noise_at(s, index, &rng, k);
        if (!(score < INFINITY)) {
            attn__fail(
                s->context, ATTN_ERROR_UNSUPPORTED,
                "the probabilities of element %lld of the images are not finite: the weights hold NaN, infinity or "
                "numbers that are too large for temperature %g",
                (long long)index, temperature);
            return false;
        }
        if (score > best) {
            best = score;
            chosen = (int32_t)k;
        }
    }
    ((int32_t *)attn_tensor_data(s->x))[index] = chosen;
    return true;
}

/* Draws the value at position p in every image. Known values are not drawn. The logits of image b begin at element
 * first + b * step. */
static bool draw_place(const sampler *s, const attn_tensor *logits, int64_t first, int64_t step, place p)
{
    bool done = logits != NULL;
    for (int64_t b = 0; b < s->batch && done; b++)
        done = is_known(s, index_of(s, b, p)) || draw(s, logits, first + b * step, index_of(s, b, p));
    return done;
}

/* Returns the values of n consecutive positions of every image, beginning at p, as I32 [B,n]. */
static attn_tensor *numbers(const sampler *s, place p, int64_t n)
{
    attn_tensor *ids = attn_tape_tensor(s->tape, ATTN_I32, 2, (int64_t[]){s->batch, n}, NULL);
    for (int64_t b = 0; ids && b < s->batch; b++) {
        memcpy((int32_t *)attn_tensor_data(ids) + b * n, (const int32_t *)attn_tensor_data(s->x) + index_of(s, b, p),
               (size_t)n * sizeof(int32_t));
    }
    return ids;
}

/* ----------------------------------------------------------------------------------------------- pixels */

/* Computes and draws one pixel with the inner decoder. `input` [B,1,X,D] is the inner decoder's input for the
 * pixel's row, computed from the rows above and the earlier slices. */
static bool draw_pixel(sampler *s, attn_tensor *input, place p)
{
    const attn__axial_transformer *m = s->m;
    attn_tensor *h =
        attn_reshape(s->tape, attn_slice(s->tape, input, 2, p.x, p.x + 1), 3, (int64_t[]){s->batch, 1, m->dim});
    if (p.x > 0) {
        place left = {p.slice, p.y, p.x - 1};
        h = attn_add(s->tape, h, attn_nn_embedding_forward(&m->embedding, s->tape, numbers(s, left, 1)));
    }
    for (int i = 0; i < m->ninner; i++)
        h = attn_nn_axial_block_step(&m->inner[i], s->tape, h, &s->inner[i]);
    return draw_place(s, attn__axial_transformer_head(m, s->tape, h), 0, m->levels, p);
}

/* ------------------------------------------------------------------------------------------------- rows */

/* Runs the outer decoder on a row whose pixels are drawn. Returns the decoder's result [B,1,X,D], which is a part of
 * the next row's input. `base` [B,1,X,D] is the row's part of the sum of positions and encoded slices. */
static attn_tensor *finish_row(sampler *s, attn_tensor *base, place row)
{
    const attn__axial_transformer *m = s->m;
    const int64_t line[4] = {s->batch, 1, m->width, m->dim}, apart[3] = {s->batch * m->width, 1, m->dim};
    attn_tensor *h = attn_nn_embedding_forward(&m->embedding, s->tape, numbers(s, row, m->width));
    h = attn_add(s->tape, attn_reshape(s->tape, h, 4, line), base);
    for (int i = 0; i < m->nouter; i++) {
        if (i % 2 == 0) {
            h = attn_nn_axial_block_forward(&m->outer[i], s->tape, h, 2, ATTN_CAUSAL_NONE, NULL);
        } else { /* for column attention, the cache has one row for each column of each image */
            h = attn_nn_axial_block_step(&m->outer[i], s->tape, attn_reshape(s->tape, h, 3, apart), &s->outer[i]);
            h = attn_reshape(s->tape, h, 4, line);
        }
    }
    return h;
}

/* Draws one row, and returns what finish_row returns for it. `above` is the result of finish_row for the row above,
 * or NULL for the first row. */
static attn_tensor *draw_row(sampler *s, attn_tensor *base, attn_tensor *above, place row)
{
    const attn__axial_transformer *m = s->m;
    attn_tensor *own = attn_slice(s->tape, base, 1, row.y, row.y + 1);
    attn_tensor *input = above ? attn_add(s->tape, own, above) : own;
    bool done = input != NULL;
    for (int i = 0; i < m->ninner; i++)
        s->inner[i].length = 0;
    /* a row that is completely known is not drawn; only its contribution to later rows is computed */
    bool known = rows_are_known(s, row.slice, row.y, row.y + 1);
    for (row.x = 0; row.x < m->width && done && !known; row.x++) {
        attn_scope_begin(s->tape);
        done = draw_pixel(s, input, row);
        attn_scope_end(s->tape, NULL);
    }
    row.x = 0;
    return done ? finish_row(s, own, row) : NULL;
}

static bool report(sampler *s, int64_t rows)
{
    s->rows_done += rows;
    int64_t all = s->options.rows_all ? s->options.rows_all : s->m->slices * s->m->height;
    return attn__work(s->context, "rows", s->options.rows_before + s->rows_done, all) == ATTN_OK;
}

/* ----------------------------------------------------------------------------------------------- slices */

/* Returns an I32 tensor [B] whose elements are all `slice`. */
static attn_tensor *repeated(const sampler *s, int64_t slice)
{
    attn_tensor *slices = attn_tape_tensor(s->tape, ATTN_I32, 1, &s->batch, NULL);
    for (int64_t b = 0; slices && b < s->batch; b++)
        ((int32_t *)attn_tensor_data(slices))[b] = (int32_t)slice;
    return slices;
}

static bool draw_slice(sampler *s, int64_t slice)
{
    const attn__axial_transformer *m = s->m;
    attn_tape_reset(s->tape, NULL);
    /* The tape has the model's precision until it is reset. No gradients are recorded. */
    (void)attn__model_begin(s->model, s->tape);
    attn_scope_begin(s->tape);
    attn_tensor *slices = repeated(s, slice);
    attn_tensor *base = slices ? attn__axial_transformer_base(m, s->tape, s->x, slices, NULL) : NULL;
    attn_tensor *above = NULL;
    attn_scope_end(s->tape, base);
    for (int i = 0; i < m->nouter; i++)
        s->outer[i].length = 0;
    bool done = base != NULL;
    for (int64_t y = 0; y < m->height && done; y++) {
        attn_scope_begin(s->tape);
        above = attn_scope_end(s->tape, draw_row(s, base, above, (place){slice, y, 0}));
        done = above && report(s, 1);
    }
    return done;
}

/* Draws a slice with the slow sampler. It follows the model's definition and evaluates the whole model for every
 * pixel. */
static bool draw_slice_slowly(sampler *s, int64_t slice)
{
    const attn__axial_transformer *m = s->m;
    for (place p = {slice, 0, 0}; p.y < m->height; p.y++) {
        for (p.x = 0; p.x < m->width; p.x++) {
            attn_tape_reset(s->tape, NULL);
            attn_tensor *logits = attn_axial_transformer_logits(s->model, s->tape, s->x, repeated(s, slice));
            if (!draw_place(s, logits, (p.y * m->width + p.x) * m->levels, m->height * m->width * m->levels, p))
                return false;
        }
        if (!report(s, 1))
            return false;
    }
    return true;
}

/* -------------------------------------------------------------------------------------------- the whole */

static bool make_caches(sampler *s)
{
    const attn__axial_transformer *m = s->m;
    attn_dtype dtype = attn_tensor_dtype(m->head.weight);
    attn_status status = ATTN_OK;
    for (int i = 1; i < m->nouter && status == ATTN_OK; i += 2)
        status = attn_nn_kv_cache_init(&s->outer[i], s->context, dtype, s->batch * m->width, m->height, m->dim);
    for (int i = 0; i < m->ninner && status == ATTN_OK; i++)
        status = attn_nn_kv_cache_init(&s->inner[i], s->context, dtype, s->batch, m->width, m->dim);
    return status == ATTN_OK;
}

static bool options_fit(const sampler *s)
{
    const attn_tensor *noise = s->options.noise, *known = s->options.known;
    int64_t size = attn_tensor_size(s->x);
    if (!(s->options.temperature > 0)) {
        attn__fail(s->context, ATTN_ERROR_ARGUMENT, "temperature is %g; it must be above 0", s->options.temperature);
        return false;
    }
    if (noise && attn_tensor_dtype(noise) != ATTN_F32 && attn_tensor_dtype(noise) != ATTN_F64) {
        attn__fail(s->context, ATTN_ERROR_SHAPE, "noise is of type %s; expected f32 or f64",
                   attn_dtype_name(attn_tensor_dtype(noise)));
        return false;
    }
    if (noise && attn_tensor_size(noise) != size * s->m->levels) {
        attn__fail(s->context, ATTN_ERROR_SHAPE,
                   "noise has %lld elements; expected %lld, one for each of the %lld levels of each of the %lld "
                   "elements of x",
                   (long long)attn_tensor_size(noise), (long long)size * s->m->levels, (long long)s->m->levels,
                   (long long)size);
        return false;
    }
    if (known && attn_tensor_dtype(known) != ATTN_U8 && attn_tensor_dtype(known) != ATTN_BOOL) {
        attn__fail(s->context, ATTN_ERROR_SHAPE, "known is of type %s; expected u8 or bool",
                   attn_dtype_name(attn_tensor_dtype(known)));
        return false;
    }
    if (known && attn_tensor_size(known) != size) {
        attn__fail(s->context, ATTN_ERROR_SHAPE, "known has %lld elements; expected %lld, as many as x has",
                   (long long)attn_tensor_size(known), (long long)size);
        return false;
    }
    return true;
}

/* Sets the unknown values of x to 0. They have no influence on the result, but the model accepts only valid levels,
 * and the caller may not have set them. */
static void clear_unknown(const sampler *s)
{
    int32_t *data = attn_tensor_data(s->x);
    for (int64_t i = 0; i < attn_tensor_size(s->x); i++)
        data[i] = is_known(s, i) ? data[i] : 0;
}

static void run(sampler *s)
{
    bool done = options_fit(s) && attn_tape_create(&s->tape, s->context) == ATTN_OK && make_caches(s) &&
                attn__packed_weights_begin(s->tape) == ATTN_OK;
    if (done) {
        clear_unknown(s);
        done = attn__axial_transformer_takes(s->m, s->context, s->x, true);
    }
    for (int64_t slice = 0; slice < s->m->slices && done; slice++)
        if (rows_are_known(s, slice, 0, s->m->height))
            done = report(s, s->m->height);
        else
            done = s->options.slow ? draw_slice_slowly(s, slice) : draw_slice(s, slice);
    for (int i = 0; i < ATTN__MAX_BLOCKS; i++) {
        attn_nn_kv_cache_free(&s->outer[i]);
        attn_nn_kv_cache_free(&s->inner[i]);
    }
    if (s->tape)
        attn__packed_weights_end(s->tape);
    attn_tape_destroy(s->tape);
}

attn_status attn_axial_transformer_sample(attn_model *model, attn_tensor *x,
                                          const attn_axial_transformer_options *options)
{
    ATTN__CALL(model->context);
    attn_context *context = attn_model_context(model);
    const attn__axial_transformer *m = attn__axial_transformer_of(model, context);
    if (!m || !attn__axial_transformer_takes(m, context, x, false))
        return attn__result_status(context, NULL);
    /* allocated on the heap, because the caches of all blocks are too large for the stack */
    sampler *s = attn__alloc_zero(context, sizeof *s);
    if (!s)
        return ATTN_ERROR_MEMORY;
    *s = (sampler){.m = m, .model = model, .context = context, .x = x, .batch = attn_tensor_length(x, 0)};
    s->options = options ? *options : (attn_axial_transformer_options){0};
    s->options.temperature = s->options.temperature == 0 ? 1 : s->options.temperature;
    run(s);
    attn__free(context, s);
    return attn__call_status(context);
}
