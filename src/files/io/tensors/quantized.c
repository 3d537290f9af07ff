/* SPDX-License-Identifier: MIT
 * Reads and makes weights that are stored as int8 with one scale per row. */
#include "io/tensors/quantized.h"

#include "tensor/linear_part.h"

#include <float.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char ending[] = ATTN__INT8_SCALE;

/* Largest allowed scale. Its product with an int8 integer is at most the largest float. */
static const float LARGEST_SCALE = FLT_MAX / 128;

/* Returns the length of NAME in "NAME.int8_scale". Returns 0 for names of another form. */
static size_t base_length(const char *name)
{
    size_t n = strlen(name), m = sizeof ending - 1;
    return n > m && strcmp(name + n - m, ending) == 0 ? n - m : 0;
}

static int by_base(const void *key, const void *item)
{
    const attn__array *scale = key;
    const char *name = (*(const attn__array *const *)item)->name;
    size_t n = base_length(scale->name);
    int order = strncmp(scale->name, name, n);
    return order ? order : name[n] ? -1 : 0;
}

static attn_status fail(const attn__arrays *arrays, const attn__array *scale, const char *what)
{
    return attn__fail(arrays->context, ATTN_ERROR_FORMAT, "%s: tensor \"%.200s\": %s", arrays->file, scale->name, what);
}

static float scale_at(const attn__array *scale, int64_t i)
{
    uint32_t bits = attn__read_u32(scale->data + 4 * i);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static attn_status check(const attn__arrays *arrays, const attn__array *scale, const attn__array *weights)
{
    char shape[128];
    attn__array_shape_text(shape, scale->rank, scale->shape);
    if (weights->element != ATTN__I8)
        return attn__fail(arrays->context, ATTN_ERROR_FORMAT,
                          "%s: tensor \"%.200s\" must be of type I8, since it has scales (\"%.200s\")", arrays->file,
                          weights->name, scale->name);
    if (weights->rank != 2)
        return attn__fail(arrays->context, ATTN_ERROR_FORMAT,
                          "%s: tensor \"%.200s\" has %d axes; a tensor that has scales (\"%.200s\") must have 2 axes",
                          arrays->file, weights->name, weights->rank, scale->name);
    if (scale->element != ATTN__F32)
        return fail(arrays, scale, "scales must be of type F32");
    if (scale->rank != 1 || scale->shape[0] != weights->shape[0])
        return attn__fail(arrays->context, ATTN_ERROR_FORMAT,
                          "%s: tensor \"%.200s\" has the shape %s; expected [%" PRId64
                          "], one scale for each row of \"%.200s\"",
                          arrays->file, scale->name, shape, weights->shape[0], weights->name);
    for (int64_t i = 0; i < scale->shape[0]; i++) {
        float value = scale_at(scale, i);
        if (!(value >= 0 && value <= LARGEST_SCALE))
            return attn__fail(arrays->context, ATTN_ERROR_FORMAT,
                              "%s: tensor \"%.200s\": scale %" PRId64 " is %g; scales are 0 to %g", arrays->file,
                              scale->name, i, (double)value, (double)LARGEST_SCALE);
    }
    return ATTN_OK;
}

static void attach(const attn__array *scale, attn__array *weights)
{
    weights->scales = scale->data;
    weights->whole = weights->data;
    weights->row = weights->shape[1];
    weights->stored = (size_t)attn__array_count(weights) + (size_t)weights->shape[0] * sizeof(float);
}

static void drop_scales(attn__arrays *arrays, const bool *used)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < arrays->n; i++)
        if (used[i])
            attn__free(arrays->context, arrays->items[i].name);
        else
            arrays->items[kept++] = arrays->items[i];
    arrays->n = kept;
}

attn_status attn__findings_dequantize(attn__findings *findings)
{
    attn__arrays *arrays = &findings->arrays;
    int64_t scales = 0;
    for (int64_t i = 0; i < arrays->n; i++)
        scales += base_length(arrays->items[i].name) > 0;
    if (scales == 0)
        return ATTN_OK;
    const attn__array **sorted = attn__arrays_sorted(arrays);
    bool *used = attn__alloc_zero(arrays->context, (size_t)arrays->n);
    attn_status status = sorted && used ? ATTN_OK : ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < arrays->n && status == ATTN_OK; i++) {
        const attn__array *scale = &arrays->items[i];
        const attn__array **found =
            base_length(scale->name) ? bsearch(scale, sorted, (size_t)arrays->n, sizeof *sorted, by_base) : NULL;
        if (!found)
            continue;
        used[i] = true;
        status = check(arrays, scale, *found);
        if (status == ATTN_OK)
            attach(scale, &arrays->items[*found - arrays->items]);
    }
    if (status == ATTN_OK)
        drop_scales(arrays, used);
    attn__free(arrays->context, sorted);
    attn__free(arrays->context, used);
    return status;
}

/* Returns whether the weights of a row give the same integers q and the same scale when they are quantized again. Some
 * weights near the largest float do not. */
static bool same_again(const int8_t *q, float scale, int64_t k, float *row, int8_t *again)
{
    for (int64_t j = 0; j < k; j++)
        row[j] = (float)q[j] * scale;
    float other = attn__quantize_row(row, k, again);
    return other == scale && memcmp(q, again, (size_t)k) == 0;
}

attn_status attn__int8_of_weights(attn_context *context, const attn_tensor *w, int8_t *q, float *scales, bool *exact)
{
    int64_t n = attn_tensor_length(w, 0), k = attn_tensor_length(w, 1);
    const float *x = attn_tensor_data(w);
    float *row = attn__alloc(context, attn__size_mul((size_t)k, sizeof *row + 1));
    *exact = attn__fits_int8(k);
    if (!row)
        return ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < n && *exact; i++) {
        scales[i] = attn__quantize_row(x + i * k, k, q + i * k);
        *exact = scales[i] <= LARGEST_SCALE && same_again(q + i * k, scales[i], k, row, (int8_t *)(row + k));
    }
    attn__free(context, row);
    return ATTN_OK;
}

void attn__bf16_of_weights(const attn_tensor *w, uint16_t *to)
{
    attn__round_to_bf16(w->context, attn_tensor_data(w), attn_tensor_size(w), to);
}
