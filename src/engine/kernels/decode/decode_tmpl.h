/* SPDX-License-Identifier: MIT
 *
 * decode_tmpl.h - attention of a few queries for one instruction set; see decode.h.
 */
#include "simd/exp.h"
#include "simd/sigmoid.h"
#include "simd/sums.h"
#include "base/normal.h"

/* Number of vectors of channels that are accumulated at once. */
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

/* Prefetches channels [c, c + 2 * VF_LANES) of a row. Each cache line is requested twice, because the processor drops
 * prefetches if it has no room for them. */
VF_FN void row_prefetch(const void *base, attn_dtype dtype, int64_t at, int64_t c)
{
    enum { HALF_LINE = 32 };
    const int size = dtype == ATTN_BF16 ? 2 : 4;
    const char *from = (const char *)base + (at + c) * size;
    VF_UNROLL
    for (int i = 0; i < 2 * VF_LANES * size; i += HALF_LINE)
        __builtin_prefetch(from + i, 0, 2);
}

/* Computes the scores of one query for VF_LANES keys. Each key has a vector of partial sums. */
VF_FN vf score_lanes(const attn__decode_rows *k, attn_dtype dtype, const int64_t *at, const int64_t *next,
                     const float *q)
{
    vf sum[VF_LANES];
    int left = (int)(k->channels % VF_LANES);
    VF_UNROLL
    for (int r = 0; r < VF_LANES; r++) {
        vf even = vf_zero(), odd = even; /* reads rows one by one, in memory order */
        int64_t c = 0;
        for (; c + 2 * VF_LANES <= k->channels; c += 2 * VF_LANES) {
            if (next)
                row_prefetch(k->next, dtype, next[r], c);
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
    return vf_sums(sum);
}

VF_FN void score_as(const attn__decode_rows *k, attn_dtype dtype, const float *q, int64_t ldq, int64_t queries,
                    float *s, int64_t lds)
{
    for (int64_t j = 0; j < k->rows; j += VF_LANES) {
        int64_t at[VF_LANES];
        for (int r = 0; r < VF_LANES; r++)
            at[r] = k->at[j + r < k->rows ? j + r : k->rows - 1];
        for (int64_t i = 0; i < queries; i++)
            vf_store(s + i * lds + j,
                     score_lanes(k, dtype, at, i == 0 && k->next ? k->next_at + j : NULL, q + i * ldq));
    }
}

static void decode_score(const attn__decode_rows *k, const float *q, int64_t ldq, int64_t queries, float *s,
                         int64_t lds)
{
    if (k->dtype == ATTN_BF16)
        score_as(k, ATTN_BF16, q, ldq, queries, s, lds);
    else
        score_as(k, ATTN_F32, q, ldq, queries, s, lds);
}

/* Does one step of the online softmax. The maximum may ignore a NaN, but the weight of the NaN is NaN. */
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
    float shrink = attn__normal(exp2f(old - reference));
    *l = *l * shrink + vf_sum(sum);
    return shrink;
}

static void separate_keys(float *s, int64_t count, bool squash, float bias, float *m, float *l)
{
    vf none = vf_set1(-INFINITY), slope;
    bool any = false;
    for (int64_t j = 0; j < count; j += VF_LANES) {
        int n = count - j < VF_LANES ? (int)(count - j) : VF_LANES;
        vf x = n < VF_LANES ? vf_select(vm_first(n), vf_load_part(s + j, n), none) : vf_load(s + j);
        vf p = squash ? vf_sigmoid(vf_add(x, vf_set1(bias)), &slope) : vf_plain_weight(x);
        any = any || vm_any(vm_not(vf_eq(x, none)));
        if (n < VF_LANES)
            vf_store_part(s + j, p, n);
        else
            vf_store(s + j, p);
    }
    *m = any ? 0.0f : *m;
    *l = any ? 1.0f : *l;
}

/* Adds p v of keys [from, to) to o, for `vectors` vectors of channels from channel `at` on. Even and odd keys have
 * separate sums, because `vectors` dependency chains may be too few to keep the multiply-add units busy. */
VF_FN void add_chunk(const attn__decode_rows *v, attn_dtype dtype, int64_t from, int64_t to, const float *p,
                     float shrink, float *o, int64_t at, int vectors, int n, bool prefetch)
{
    vf even[CHUNK], odd[CHUNK];
    VF_UNROLL
    for (int i = 0; i < vectors; i++) {
        even[i] = vf_mul(vf_load(o + at + i * VF_LANES), vf_set1(shrink));
        odd[i] = vf_zero();
    }
    int64_t j = from;
    for (; j + 2 <= to; j += 2) {
        vf x = vf_set1(p[j]), y = vf_set1(p[j + 1]);
        VF_UNROLL
        for (int i = 0; i < vectors; i++) {
            if (prefetch && i % 2 == 0)
                row_prefetch(v->next, dtype, v->next_at[j], at + i * VF_LANES);
            even[i] = vf_fma(x, row_load(v->base, dtype, v->at[j] + at + i * VF_LANES, n), even[i]);
        }
        VF_UNROLL
        for (int i = 0; i < vectors; i++) {
            if (prefetch && i % 2 == 0)
                row_prefetch(v->next, dtype, v->next_at[j + 1], at + i * VF_LANES);
            odd[i] = vf_fma(y, row_load(v->base, dtype, v->at[j + 1] + at + i * VF_LANES, n), odd[i]);
        }
    }
    if (j < to) {
        vf x = vf_set1(p[j]);
        VF_UNROLL
        for (int i = 0; i < vectors; i++)
            even[i] = vf_fma(x, row_load(v->base, dtype, v->at[j] + at + i * VF_LANES, n), even[i]);
    }
    VF_UNROLL
    for (int i = 0; i < vectors; i++)
        vf_store(o + at + i * VF_LANES, vf_add(even[i], odd[i]));
}

VF_FN void add_as(const attn__decode_rows *v, attn_dtype dtype, int64_t from, int64_t to, const float *p, float shrink,
                  float *o, bool prefetch)
{
    int64_t at = 0;
    for (; at + CHUNK * VF_LANES <= v->channels; at += CHUNK * VF_LANES)
        add_chunk(v, dtype, from, to, p, shrink, o, at, CHUNK, VF_LANES, prefetch);
    for (; at + CHUNK / 2 * VF_LANES <= v->channels; at += CHUNK / 2 * VF_LANES)
        add_chunk(v, dtype, from, to, p, shrink, o, at, CHUNK / 2, VF_LANES, prefetch);
    for (; at + VF_LANES <= v->channels; at += VF_LANES)
        add_chunk(v, dtype, from, to, p, shrink, o, at, 1, VF_LANES, prefetch);
    if (at < v->channels)
        add_chunk(v, dtype, from, to, p, shrink, o, at, 1, (int)(v->channels - at), prefetch);
}

static void decode_add(const attn__decode_rows *v, int64_t from, int64_t to, const float *p, float shrink, float *o)
{
    if (v->dtype == ATTN_BF16)
        add_as(v, ATTN_BF16, from, to, p, shrink, o, v->next != NULL);
    else if (v->next)
        add_as(v, ATTN_F32, from, to, p, shrink, o, true);
    else
        add_as(v, ATTN_F32, from, to, p, shrink, o, false);
}

/* Stores at most VF_LANES numbers. Only a partial vector is stored with a mask, see softmax_backward_tmpl.h. */
VF_FN void row_store(const attn__decode_spread *t, attn_dtype dtype, int64_t at, vf x, int64_t left)
{
    bool whole = left >= VF_LANES;
    int n = whole ? VF_LANES : (int)left;
    vf factor = vf_set1(t->factor), before = t->add ? row_load(t->out, dtype, at, n) : vf_zero();
    x = t->add ? vf_fma(x, factor, before) : vf_mul(x, factor);
    if (dtype == ATTN_BF16) {
        uint16_t *p = (uint16_t *)t->out + at;
        if (!whole)
            vf_store_bf16_part(p, x, n);
        else if (t->stream && (uintptr_t)p % (VF_LANES * sizeof *p) == 0)
            vf_stream_bf16(p, x);
        else
            vf_store_bf16(p, x);
        return;
    }
    float *p = (float *)t->out + at;
    if (!whole)
        vf_store_part(p, x, n);
    else if (t->stream && (uintptr_t)p % (VF_LANES * sizeof(float)) == 0)
        vf_stream(p, x);
    else
        vf_store(p, x);
}

/* Computes `vectors` vectors of the gradient of row j. Rows are written in memory order. */
VF_FN void spread_row(const attn__decode_spread *t, attn_dtype dtype, int64_t j, int vectors, int64_t at, int64_t count)
{
    vf sum[CHUNK];
    VF_UNROLL
    for (int v = 0; v < vectors; v++)
        sum[v] = vf_zero();
    for (int64_t i = 0; i < t->queries; i++) {
        bool sees = j >= t->from[i] && j < t->to[i] && (!t->alive || (t->alive[i * t->ldw + j] & t->bit));
        if (!sees) /* weights of masked pairs may be NaN */
            continue;
        vf w = vf_set1(t->w[i * t->ldw + j]);
        VF_UNROLL
        for (int v = 0; v < vectors; v++)
            sum[v] = vf_fma(w, vf_load(t->x + i * t->ldx + at + v * VF_LANES), sum[v]);
    }
    VF_UNROLL
    for (int v = 0; v < vectors; v++)
        row_store(t, dtype, t->at[j] + at + v * VF_LANES, sum[v], count - v * VF_LANES);
}

VF_FN void spread_as(const attn__decode_spread *args, attn_dtype dtype, bool stream)
{
    attn__decode_spread t = *args; /* a copy, whose members need not be read again after each store */
    t.stream = stream;
    t.add = !stream && args->add;
    for (int64_t j = 0; j < t.rows; j++) {
        int64_t c = 0;
        for (; c + CHUNK / 2 * VF_LANES <= t.channels; c += CHUNK / 2 * VF_LANES)
            spread_row(&t, dtype, j, CHUNK / 2, c, t.channels - c);
        for (; c < t.channels; c += VF_LANES)
            spread_row(&t, dtype, j, 1, c, t.channels - c);
    }
}

static void spread(const attn__decode_spread *t)
{
    bool stream = t->stream && !t->add;
    if (t->dtype == ATTN_BF16 && stream)
        spread_as(t, ATTN_BF16, true);
    else if (t->dtype == ATTN_BF16)
        spread_as(t, ATTN_BF16, false);
    else if (stream)
        spread_as(t, ATTN_F32, true);
    else
        spread_as(t, ATTN_F32, false);
}

static void decode_settle(void)
{
    vf_stream_end();
}

const attn__decode_kernel VF_NAME(attn__decode) = {VF_ISA,        VF_LANES,   decode_score, weigh,
                                                   separate_keys, decode_add, spread,       decode_settle};
