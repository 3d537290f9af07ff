/* SPDX-License-Identifier: MIT */
#include "attend/block/rows.h"

#include <string.h>

static int64_t stride_of(const attn__axis *axis, size_t stride)
{
    return *(const int64_t *)(const void *)((const char *)axis + stride);
}

int64_t attn__offsets_one(const attn__group *group, size_t stride, int64_t index)
{
    int64_t offset = 0;
    for (int a = group->n - 1; a >= 0; a--) {
        int64_t n = group->axis[a].dim.n;
        if (n <= 1)
            continue;
        offset += index % n * stride_of(&group->axis[a], stride);
        index /= n;
    }
    return offset;
}

/* Computes offsets in runs along the innermost axis, because a run needs only one division. */
void attn__offsets_fill(const attn__group *group, size_t stride, int64_t first, int64_t count, int64_t *out)
{
    const attn__axis *last = &group->axis[group->n - 1];
    int64_t n = last->dim.n, step = stride_of(last, stride);
    for (int64_t i = 0; i < count;) {
        int64_t at = attn__offsets_one(group, stride, first + i);
        int64_t run = n - (first + i) % n;
        for (int64_t end = run < count - i ? i + run : count; i < end; i++, at += step)
            out[i] = at;
    }
}

void attn__offsets_from(const attn__group *group, size_t stride, int64_t base, int64_t first, int64_t count,
                        int64_t *out)
{
    attn__offsets_fill(group, stride, first, count, out);
    for (int64_t i = 0; i < count; i++)
        out[i] += base;
}

void attn__offsets_indices(const attn__group *group, int axis, int64_t first, int64_t count, int64_t *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = attn__offsets_index(group, axis, first + i);
}

bool attn__offsets_even(const attn__group *group, size_t stride, int64_t step)
{
    for (int a = group->n - 1; a >= 0; a--) {
        if (group->axis[a].dim.n > 1 && stride_of(&group->axis[a], stride) != step)
            return false;
        step *= group->axis[a].dim.n;
    }
    return true;
}

/* ------------------------------------------------------------------------------------------- batch indices */

attn__place attn__place_of(const attn__canonical *canonical, int64_t batch)
{
    attn__place place = {.drop = 0};
    for (int a = canonical->batch.n - 1; a >= 0; a--) {
        int64_t n = canonical->batch.axis[a].dim.n;
        attn__place_advance(&place, &canonical->batch.axis[a], n > 1 ? batch % n : 0);
        batch /= n > 1 ? n : 1;
    }
    return place;
}

/* ------------------------------------------------------------------------------------------- rows as f32 */

bool attn__rows_load(const attn__rows *x, const attn__online_softmax_kernel *kernel, float *to, int64_t ld)
{
    for (int64_t r = 0; r < x->rows && x->n < ld; r++)
        memset(to + r * ld + x->n, 0, (size_t)(ld - x->n) * sizeof *to);
    return kernel->copy(x->data, x->dtype, x->at, x->channel, x->rows, x->n, to, ld);
}

void attn__rows_prefetch(const attn__rows *x, int64_t r)
{
    enum { LINE = 64 };
    int64_t size = x->dtype == ATTN_BF16 ? 2 : 4;
    for (int64_t byte = 0; r < x->rows && byte < x->n * size; byte += LINE)
        __builtin_prefetch((const char *)x->data + x->at[r] * size + byte, 1, 3);
}

static void store_row(const attn__rows *x, const attn__softmax_backward_kernel *kernel, int64_t at, const float *from,
                      float scale, bool add)
{
    if (x->dtype == ATTN_BF16)
        kernel->store_bf16((uint16_t *)(uintptr_t)x->data + at, from, x->n, scale, add);
    else
        kernel->store((float *)(uintptr_t)x->data + at, from, x->n, scale, add);
}

static void store_channels(const attn__rows *x, const attn__softmax_backward_kernel *kernel, int64_t at,
                           const float *from, float scale, bool add)
{
    float *f32 = (float *)(uintptr_t)x->data;
    for (int64_t c = 0; c < x->n; c++) {
        int64_t to = at + x->channel[c];
        if (x->dtype == ATTN_BF16)
            kernel->store_bf16((uint16_t *)(uintptr_t)x->data + to, from + c, 1, scale, add);
        else
            f32[to] = (add ? f32[to] : 0.0f) + scale * from[c];
    }
}

void attn__rows_store(const attn__rows *x, const attn__softmax_backward_kernel *kernel, const float *from, int64_t ld,
                      float scale, bool add)
{
    for (int64_t r = 0; r < x->rows; r++, from += ld) {
        if (x->channel) {
            store_channels(x, kernel, x->at[r], from, scale, add);
            continue;
        }
        attn__rows_prefetch(x, r + ATTN__ROWS_AHEAD);
        store_row(x, kernel, x->at[r], from, scale, add);
    }
}

/* ----------------------------------------------------------------------------------- elements as doubles */

/* An iterator over a group. Each step advances it by one run, which covers the last axis. */
typedef struct runs {
    const attn__group *group;
    size_t stride;
    int64_t index[ATTN_MAX_DIMS];
    int64_t offset;
    int64_t length, step;
} runs;

static inline runs runs_of(const attn__group *group, attn__operand op, int64_t offset)
{
    const attn__axis *last = &group->axis[group->n - 1];
    runs r = {.group = group, .stride = attn__stride_of(op), .offset = offset, .length = last->dim.n};
    r.step = stride_of(last, r.stride);
    return r;
}

static inline void advance(runs *r)
{
    for (int i = r->group->n - 2; i >= 0; i--) {
        int64_t step = stride_of(&r->group->axis[i], r->stride);
        r->offset += step;
        if (++r->index[i] < r->group->axis[i].dim.n)
            return;
        r->offset -= step * r->group->axis[i].dim.n;
        r->index[i] = 0;
    }
}

void attn__gather(const attn__group *group, attn__operand op, attn_dtype dtype, const void *base, int64_t offset,
                  double *out)
{
    runs r = runs_of(group, op, offset);
    for (int64_t done = 0; done < group->size; done += r.length, advance(&r), out += r.length) {
        if (dtype == ATTN_F64 && r.step == 1)
            memcpy(out, (const double *)base + r.offset, (size_t)r.length * sizeof *out);
        else
            for (int64_t e = 0; e < r.length; e++)
                out[e] = attn__load(dtype, base, r.offset + e * r.step);
    }
}

void attn__scatter(const attn__group *group, attn__operand op, attn_dtype dtype, void *base, int64_t offset,
                   const double *in, bool add)
{
    runs r = runs_of(group, op, offset);
    for (int64_t done = 0; done < group->size; done += r.length, advance(&r), in += r.length) {
        if (dtype == ATTN_F64) {
            double *doubles = (double *)base + r.offset;
            for (int64_t e = 0; e < r.length; e++)
                doubles[e * r.step] = add ? doubles[e * r.step] + in[e] : in[e];
            continue;
        }
        for (int64_t e = 0; e < r.length; e++) {
            int64_t at = r.offset + e * r.step;
            attn__store(dtype, base, at, add ? attn__load(dtype, base, at) + in[e] : in[e]);
        }
    }
}
