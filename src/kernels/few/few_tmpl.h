/* SPDX-License-Identifier: MIT
 *
 * few_tmpl.h - a few queries for one instruction set; see few.h.
 */
#include "simd/exp.h"

/* Vectors of values under way at once. */
#define CHUNK (VF_REGISTERS / 4)

VF_FN vf row_load(const void *base, attn_dtype dtype, int64_t at, int n)
{
    if (dtype == ATTN_BF16) {
        const uint16_t *p = (const uint16_t *)base + at;
        return n == VF_LANES ? vf_load_bf16(p) : vf_load_bf16_part(p, n);
    }
    const float *p = (const float *)base + at;
    return n == VF_LANES ? vf_load(p) : vf_load_part(p, n);
}

VF_FN void row_fetch(const void *base, attn_dtype dtype, int64_t at)
{
    __builtin_prefetch((const char *)base + at * (dtype == ATTN_BF16 ? 2 : 4), 0, 2);
}

/* As many keys as lanes: their sums side by side, transposed, add up to a vector of scores. */
VF_FN vf score_lanes(const attn__few_rows *k, attn_dtype dtype, const int64_t *at, const int64_t *ahead,
                      const float *q, bool first)
{
    vf sum[VF_LANES];
    int left = (int)(k->channels % VF_LANES);
    VF_UNROLL
    for (int r = 0; r < VF_LANES; r++) {
        vf even = vf_zero(), odd = even; /* row by row, in the order of memory */
        int64_t c = 0;
        for (; c + 2 * VF_LANES <= k->channels; c += 2 * VF_LANES) {
            if (first) {
                row_fetch(k->base, dtype, ahead[r] + c);
                row_fetch(k->base, dtype, ahead[r] + c + VF_LANES);
            }
            even = vf_fma(vf_load(q + c), row_load(k->base, dtype, at[r] + c, VF_LANES), even);
            odd = vf_fma(vf_load(q + c + VF_LANES), row_load(k->base, dtype, at[r] + c + VF_LANES, VF_LANES), odd);
        }
        if (c + VF_LANES <= k->channels) {
            even = vf_fma(vf_load(q + c), row_load(k->base, dtype, at[r] + c, VF_LANES), even);
            c += VF_LANES;
        }
        if (left)
            odd = vf_fma(vf_load(q + c), row_load(k->base, dtype, at[r] + c, left), odd);
        sum[r] = vf_add(even, odd);
    }
    vf_transpose(sum);
    VF_UNROLL
    for (int half = VF_LANES / 2; half > 0; half /= 2) {
        VF_UNROLL
        for (int r = 0; r < half; r++)
            sum[r] = vf_add(sum[r], sum[r + half]);
    }
    return sum[0];
}

VF_FN void score_as(const attn__few_rows *k, attn_dtype dtype, const float *q, int64_t ldq, int64_t queries, float *s,
                    int64_t lds)
{
    for (int64_t j = 0; j < k->rows; j += VF_LANES) {
        int64_t at[VF_LANES];
        for (int r = 0; r < VF_LANES; r++)
            at[r] = k->at[j + r < k->rows ? j + r : k->rows - 1];
        for (int64_t i = 0; i < queries; i++)
            vf_store(s + i * lds + j, score_lanes(k, dtype, at, k->at + j + ATTN__FEW_AHEAD, q + i * ldq, i == 0));
    }
}

static void score(const attn__few_rows *k, const float *q, int64_t ldq, int64_t queries, float *s, int64_t lds)
{
    if (k->dtype == ATTN_BF16)
        score_as(k, ATTN_BF16, q, ldq, queries, s, lds);
    else
        score_as(k, ATTN_F32, q, ldq, queries, s, lds);
}

/* A NaN may get lost in the maximum, but not in its weight. */
static float weigh(float *s, int64_t count, float *m, float *l)
{
    vf none = vf_set1(-INFINITY), top = none, sum = vf_zero();
    int64_t whole = count / VF_LANES * VF_LANES;
    int left = (int)(count - whole);
    vm last = vm_first(left);
    for (int64_t j = 0; j < whole; j += VF_LANES)
        top = vf_max(vf_load(s + j), top);
    if (left)
        top = vf_max(vf_select(last, vf_load_part(s + whole, left), none), top);
    float old = *m, most = vf_largest(top);
    *m = most > old ? most : old;
    float reference = *m == -INFINITY ? 0.0f : *m;
    for (int64_t j = 0; j < whole; j += VF_LANES) {
        vf p = vf_exp2(vf_sub(vf_load(s + j), vf_set1(reference)));
        sum = vf_add(sum, p);
        vf_store(s + j, p);
    }
    if (left) {
        vf p = vf_exp2(vf_sub(vf_select(last, vf_load_part(s + whole, left), none), vf_set1(reference)));
        sum = vf_add(sum, p);
        vf_store_part(s + whole, p, left);
    }
    float shrink = exp2f(old - reference);
    *l = *l * shrink + vf_sum(sum);
    return shrink;
}

VF_FN void add_chunk(const attn__few_rows *v, attn_dtype dtype, int64_t from, int64_t to, const float *p, float shrink,
                     float *o, int64_t at, int vectors, int n)
{
    vf sum[CHUNK];
    VF_UNROLL
    for (int i = 0; i < vectors; i++)
        sum[i] = vf_mul(vf_load(o + at + i * VF_LANES), vf_set1(shrink));
    for (int64_t j = from; j < to; j++) {
        vf x = vf_set1(p[j]);
        VF_UNROLL
        for (int i = 0; i < vectors; i++) {
            row_fetch(v->base, dtype, v->at[j + ATTN__FEW_AHEAD] + at + i * VF_LANES);
            sum[i] = vf_fma(x, row_load(v->base, dtype, v->at[j] + at + i * VF_LANES, n), sum[i]);
        }
    }
    VF_UNROLL
    for (int i = 0; i < vectors; i++)
        vf_store(o + at + i * VF_LANES, sum[i]);
}

VF_FN void add_as(const attn__few_rows *v, attn_dtype dtype, int64_t from, int64_t to, const float *p, float shrink,
                  float *o)
{
    int64_t at = 0;
    for (; at + CHUNK * VF_LANES <= v->channels; at += CHUNK * VF_LANES)
        add_chunk(v, dtype, from, to, p, shrink, o, at, CHUNK, VF_LANES);
    for (; at + VF_LANES <= v->channels; at += VF_LANES)
        add_chunk(v, dtype, from, to, p, shrink, o, at, 1, VF_LANES);
    if (at < v->channels)
        add_chunk(v, dtype, from, to, p, shrink, o, at, 1, (int)(v->channels - at));
}

static void add(const attn__few_rows *v, int64_t from, int64_t to, const float *p, float shrink, float *o)
{
    if (v->dtype == ATTN_BF16)
        add_as(v, ATTN_BF16, from, to, p, shrink, o);
    else
        add_as(v, ATTN_F32, from, to, p, shrink, o);
}

const attn__few_kernel VF_NAME(attn__few) = {VF_ISA, VF_LANES, score, weigh, add};
