/* SPDX-License-Identifier: MIT
 *
 * small_head_tmpl.h - heads of at most 16 channels for one instruction set; see small_head.h.
 *
 * Each step of keys has two loops, and its scores stay in the L1 cache between the loops. The first loop computes
 * scores. The channels of the queries fill half of the registers. A few keys are processed at once, to hide the latency
 * of the sums. Each channel of a key is broadcast once for all vectors of queries. The second loop computes
 * exponentials while it adds the values of the previous keys to the outputs, which then fill the registers.
 * (Exponentials in the first loop were 3 % slower: they wait for the end of a chain of products, and the next products
 * wait for the exponentials.)
 */
#include "simd/power.h"

/* HELD registers hold the channels of the queries. FLIGHT registers hold scores that are being computed. */
#define HELD                         (VF_REGISTERS / 2)
#define FLIGHT                       (VF_REGISTERS / 4)
#define SMALL_HEAD_VECTORS(channels) (HELD > (channels) ? HELD / (channels) : 1)

enum { MOST_HELD = HELD > ATTN__SMALL_HEAD_MOST ? HELD : ATTN__SMALL_HEAD_MOST };

/* If the bound of the scores is below BOUND_MOST, it becomes the reference. Weights are then normal numbers, with
 * room for products with values. The largest score is at most 2 BOUND_MOST below the reference. A weight below 2^-126
 * becomes 0. It is at most 2^-46 of the largest weight. */
#define BOUND_MOST 40.0f

VF_FN void load_queries(const attn__small_head_args *t, vf *q, int channels, int vectors)
{
    VF_UNROLL
    for (int i = 0; i < channels * vectors; i++)
        q[i] = vf_load(t->q + i / vectors * t->ld + i % vectors * VF_LANES);
}

/* Computes the scores of `rows` keys and writes them to s[row][vector]. */
VF_FN void small_head_score(const vf *q, const float *k, int channels, int vectors, int rows, vf *s)
{
    VF_UNROLL
    for (int c = 0; c < channels; c++) {
        VF_UNROLL
        for (int r = 0; r < rows; r++) {
            vf key = vf_set1(k[r * channels + c]);
            VF_UNROLL
            for (int v = 0; v < vectors; v++) {
                vf *sum = &s[r * vectors + v];
                *sum = c == 0 ? vf_mul(q[v], key) : vf_fma(q[c * vectors + v], key, *sum);
            }
        }
    }
}

VF_FN void small_head_score_rows(const vf *q, const float *k, int channels, int vectors, int rows, float *p)
{
    vf s[FLIGHT];
    small_head_score(q, k, channels, vectors, rows, s);
    VF_UNROLL
    for (int i = 0; i < rows * vectors; i++)
        vf_store(p + i * VF_LANES, s[i]);
}

VF_FN void score_keys(const attn__small_head_args *t, int64_t from, int64_t keys, int channels)
{
    const int vectors = SMALL_HEAD_VECTORS(channels), rows = FLIGHT / vectors;
    vf q[MOST_HELD];
    load_queries(t, q, channels, vectors);
    const float *k = t->k + from * channels;
    int64_t j = 0;
    for (; j + rows <= keys; j += rows)
        small_head_score_rows(q, k + j * channels, channels, vectors, rows, t->p + j * vectors * VF_LANES);
    for (; j < keys; j++)
        small_head_score_rows(q, k + j * channels, channels, vectors, 1, t->p + j * vectors * VF_LANES);
}

/* Computes the weights of one key and adds weights times values to o. If `any` is set, weights may underflow, and
 * `reference` is m itself (see power.h). */
VF_FN void add_key(const float *s, const float *value, const vf_powers *powers, const vf *reference, bool any, vf *sum,
                   vf *o, int channels, int vectors)
{
    VF_UNROLL
    for (int v = 0; v < vectors; v++) {
        vf x = vf_load(s + v * VF_LANES);
        vf p = any ? vf_power_any(powers, x, reference[v]) : vf_power(powers, x, reference[v]);
        sum[v] = vf_add(sum[v], p);
        VF_UNROLL
        for (int c = 0; c < channels; c++)
            o[c * vectors + v] = vf_fma(p, vf_set1(value[c]), o[c * vectors + v]);
    }
}

VF_FN void add_values(const attn__small_head_args *t, int64_t from, int64_t keys, const vf *reference, bool any,
                      vf *sum, int channels)
{
    const int vectors = SMALL_HEAD_VECTORS(channels);
    vf o[MOST_HELD];
    vf_powers powers = vf_powers_make();
    VF_UNROLL
    for (int i = 0; i < channels * vectors; i++)
        o[i] = vf_load(t->o + i / vectors * t->ld + i % vectors * VF_LANES);
    const float *value = t->v + from * channels, *s = t->p;
    for (int64_t j = 0; j < keys; j++, value += channels, s += vectors * VF_LANES)
        add_key(s, value, &powers, reference, any, sum, o, channels, vectors);
    VF_UNROLL
    for (int i = 0; i < channels * vectors; i++)
        vf_store(t->o + i / vectors * t->ld + i % vectors * VF_LANES, o[i]);
}

/* Returns the largest score of each lane, for one vector of queries. It may ignore a NaN score. The weight of a NaN is
 * NaN, so the result is NaN. */
static vf largest(const attn__small_head_args *t, int v, int channels)
{
    vf top = vf_set1(-INFINITY);
    for (int64_t j = 0; j < t->keys; j++) {
        vf s = vf_mul(vf_load(t->q + v * VF_LANES), vf_set1(t->k[j * channels]));
        for (int c = 1; c < channels; c++)
            s = vf_fma(vf_load(t->q + c * t->ld + v * VF_LANES), vf_set1(t->k[j * channels + c]), s);
        top = vf_max(s, top);
    }
    return vf_max(top, vf_set1(-0x1p100f)); /* keeps the reference finite even if every score is -inf */
}

/* Writes the new reference to m. Returns true if the weights of some lane may be too small for vf_power. */
VF_FN bool small_head_settle(const attn__small_head_args *t, int v, int channels, vf *m)
{
    vf bound = vf_zero(), most = vf_set1(BOUND_MOST);
    for (int c = 0; c < channels; c++)
        bound = vf_fma(vf_abs(vf_load(t->q + c * t->ld + v * VF_LANES)), vf_set1(t->reach[c]), bound);
    vm low = vf_lt(bound, most);
    vf top = bound, old = vf_load(t->m + v * VF_LANES);
    bool any = vm_any(vm_not(low));
    if (any)
        top = vf_select(low, bound, largest(t, v, channels));
    top = vf_sub(vf_zero(), vf_floor(vf_sub(vf_zero(), top))); /* rounds up to a whole number */
    *m = vf_max(top, old);
    return any || vm_any(vf_lt(vf_set1(2 * BOUND_MOST), vf_add(*m, bound)));
}

/* Rescales earlier sums to the reference m. */
VF_FN void refer(const attn__small_head_args *t, int v, int channels, vf m)
{
    vf old = vf_load(t->m + v * VF_LANES);
    vm moved = vm_not(vf_eq(m, old));
    vf_store(t->m + v * VF_LANES, m);
    if (!vm_any(moved) || !vm_any(vf_lt(vf_zero(), vf_load(t->l + v * VF_LANES))))
        return;
    vf shrink = vf_select(moved, vf_scale2(vf_set1(1.0f), vf_sub(old, m)), vf_set1(1.0f));
    vf_store(t->l + v * VF_LANES, vf_mul(shrink, vf_load(t->l + v * VF_LANES)));
    for (int c = 0; c < channels; c++) {
        float *o = t->o + c * t->ld + v * VF_LANES;
        vf_store(o, vf_mul(shrink, vf_load(o)));
    }
}

VF_FN void see(const attn__small_head_args *t, int channels)
{
    enum { MOST = 4 };
    const int vectors = SMALL_HEAD_VECTORS(channels);
    vf m[MOST], reference[MOST], sum[MOST];
    bool any = false;
    VF_UNROLL
    for (int v = 0; v < vectors; v++) {
        any |= small_head_settle(t, v, channels, &m[v]);
        refer(t, v, channels, m[v]);
        sum[v] = vf_load(t->l + v * VF_LANES);
        reference[v] = vf_power_reference(m[v]);
    }
    for (int64_t from = 0; from < t->keys; from += ATTN__SMALL_HEAD_STEP) {
        int64_t keys = t->keys - from < ATTN__SMALL_HEAD_STEP ? t->keys - from : ATTN__SMALL_HEAD_STEP;
        score_keys(t, from, keys, channels);
        if (any)
            add_values(t, from, keys, m, true, sum, channels);
        else
            add_values(t, from, keys, reference, false, sum, channels);
        attn__tile_hook_run(t->hook);
    }
    VF_UNROLL
    for (int v = 0; v < vectors; v++)
        vf_store(t->l + v * VF_LANES, sum[v]);
}

VF_FN void add_weighted(const attn__small_head_args *t, int channels)
{
    const int vectors = SMALL_HEAD_VECTORS(channels);
    vf o[MOST_HELD];
    VF_UNROLL
    for (int i = 0; i < channels * vectors; i++) {
        o[i] = vf_load(t->o + i / vectors * t->ld + i % vectors * VF_LANES);
        if (t->shrink)
            o[i] = vf_mul(o[i], vf_load(t->shrink + i % vectors * VF_LANES));
    }
    const float *value = t->v, *weights = t->p;
    for (int64_t j = 0; j < t->keys; j++, value += channels, weights += vectors * VF_LANES) {
        VF_UNROLL
        for (int v = 0; v < vectors; v++) {
            vf p = vf_load(weights + v * VF_LANES);
            VF_UNROLL
            for (int c = 0; c < channels; c++)
                o[c * vectors + v] = vf_fma(p, vf_set1(value[c]), o[c * vectors + v]);
        }
    }
    VF_UNROLL
    for (int i = 0; i < channels * vectors; i++)
        vf_store(t->o + i / vectors * t->ld + i % vectors * VF_LANES, o[i]);
}

static void see4(const attn__small_head_args *t)
{
    see(t, 4);
}

static void see8(const attn__small_head_args *t)
{
    see(t, 8);
}

static void see16(const attn__small_head_args *t)
{
    see(t, 16);
}

static void score4(const attn__small_head_args *t)
{
    score_keys(t, 0, t->keys, 4);
}

static void score8(const attn__small_head_args *t)
{
    score_keys(t, 0, t->keys, 8);
}

static void score16(const attn__small_head_args *t)
{
    score_keys(t, 0, t->keys, 16);
}

static void add4(const attn__small_head_args *t)
{
    add_weighted(t, 4);
}

static void add8(const attn__small_head_args *t)
{
    add_weighted(t, 8);
}

static void add16(const attn__small_head_args *t)
{
    add_weighted(t, 16);
}

static void reach(const float *x, int64_t count, float most[ATTN__SMALL_HEAD_MOST])
{
    enum { N = ATTN__SMALL_HEAD_MOST / VF_LANES };
    vf top[N];
    VF_UNROLL
    for (int i = 0; i < N; i++)
        top[i] = vf_zero();
    int64_t at = 0;
    for (; at + ATTN__SMALL_HEAD_MOST <= count; at += ATTN__SMALL_HEAD_MOST) {
        VF_UNROLL
        for (int i = 0; i < N; i++)
            top[i] = vf_max(vf_abs(vf_load(x + at + i * VF_LANES)), top[i]);
    }
    VF_UNROLL
    for (int i = 0; i < N; i++)
        vf_store(most + i * VF_LANES, top[i]);
    for (int i = 0; at + i < count; i++)
        most[i] = fabsf(x[at + i]) > most[i] ? fabsf(x[at + i]) : most[i];
}

#include "kernels/small_head/small_head_backward_tmpl.h"

const attn__small_head_kernel VF_NAME(attn__small_head) = {
    VF_ISA,
    VF_LANES,
    {SMALL_HEAD_VECTORS(4) * VF_LANES, SMALL_HEAD_VECTORS(8) * VF_LANES, SMALL_HEAD_VECTORS(16) * VF_LANES},
    {see4, see8, see16},
    {score4, score8, score16},
    {add4, add8, add16},
    reach,
    {back4, back8, back16},
    {back_score4, back_score8, back_score16},
    {back_add4, back_add8, back_add16},
    delta};
