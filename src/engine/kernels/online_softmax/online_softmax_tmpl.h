/* SPDX-License-Identifier: MIT
 *
 * online_softmax_tmpl.h - the work between the tile products for one instruction set; see online_softmax.h.
 */
#include "simd/dropout.h"
#include "simd/exp.h"
#include "simd/sigmoid.h"
#include "simd/tanh.h"

#include "kernels/online_softmax/online_softmax_move_tmpl.h"

static void online_softmax_add(float *s, const float *bias, int64_t count, float factor)
{
    vf f = vf_set1(factor);
    for (int64_t i = 0; i < count; i += VF_LANES)
        vf_store(s + i, vf_fma(vf_load(bias + i), f, vf_load(s + i)));
}

VF_FN void softcap_vectors(float *s, vf from, vf to, int n)
{
    vf x[4];
    VF_UNROLL
    for (int i = 0; i < n; i++)
        x[i] = vf_mul(vf_load(s + i * VF_LANES), from);
    vf_tanh_small(x, n);
    VF_UNROLL
    for (int i = 0; i < n; i++)
        vf_store(s + i * VF_LANES, vf_mul(x[i], to));
}

static void softcap(float *s, int64_t count, float cap)
{
    vf to = vf_set1(cap), from = vf_set1(1.0f / cap);
    int64_t i = 0;
    for (; i + 4 * VF_LANES <= count; i += 4 * VF_LANES)
        softcap_vectors(s + i, from, to, 4);
    for (; i < count; i += VF_LANES)
        softcap_vectors(s + i, from, to, 1);
}

static void hide(float *s, const float *flag, int64_t count, float fill)
{
    vf f = vf_set1(fill);
    for (int64_t i = 0; i < count; i += VF_LANES)
        vf_store(s + i, vf_select(vf_eq(vf_load(flag + i), vf_zero()), f, vf_load(s + i)));
}

static void online_softmax_limit(float *s, int64_t rows, int64_t width, const int32_t *index, const int32_t *from,
                                 const int32_t *to, float fill)
{
    vf f = vf_set1(fill);
    for (int64_t w = 0; w < width; w += VF_LANES) {
        vi low = vi_load(from + w), high = vi_load(to + w);
        for (int64_t r = 0; r < rows; r++) {
            vi j = vi_set1(index[r]);
            vm inside = vm_and(vm_not(vi_lt(j, low)), vi_lt(j, high));
            vf_store(s + r * width + w, vf_select(inside, vf_load(s + r * width + w), f));
        }
    }
}

/* Returns the maximum of each lane over the rows. It may ignore a NaN, but the exponential of the NaN is NaN. */
VF_FN vf column_max(const float *s, int64_t rows, int64_t width)
{
    vf a = vf_set1(-INFINITY), b = a;
    int64_t r = 0;
    for (; r + 2 <= rows; r += 2) {
        a = vf_max(vf_load(s + r * width), a);
        b = vf_max(vf_load(s + (r + 1) * width), b);
    }
    if (r < rows)
        a = vf_max(vf_load(s + r * width), a);
    return vf_max(a, b);
}

/* The reference is raised to the maximum only if the maximum is more than SLACK above it. Scores are in base 2. Most
 * blocks then need no rescaling of earlier sums, and weights up to 2^8 lose no precision. Each lane decides for itself,
 * so that its bits do not depend on other lanes. */
#define SLACK 8.0f

/* Replaces the scores of a vector of lanes by weights and returns the sum of weights of each lane. Four rows at a time
 * keep the vector units busy. Row r is always added to sum r % 4, so that rows of zeros at the end change no bit. */
VF_FN vf column_exp(float *s, int64_t rows, int64_t width, vf m)
{
    vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        VF_UNROLL
        for (int i = 0; i < 4; i++) {
            vf p = vf_exp2(vf_sub(vf_load(s + (r + i) * width), m));
            sum[i] = vf_add(sum[i], p);
            vf_store(s + (r + i) * width, p);
        }
    }
    VF_UNROLL
    for (int i = 0; i < 3; i++) {
        if (r + i < rows) {
            vf p = vf_exp2(vf_sub(vf_load(s + (r + i) * width), m));
            sum[i] = vf_add(sum[i], p);
            vf_store(s + (r + i) * width, p);
        }
    }
    return vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3]));
}

static void online_softmax_softmax(const attn__online_softmax_args *t)
{
    bool changed = false;
    vf none = vf_set1(-INFINITY), one = vf_set1(1.0f);
    for (int64_t w = 0; w < t->width; w += VF_LANES) {
        vf old = vf_load(t->m + w), top = t->top ? vf_load(t->top + w) : column_max(t->s + w, t->rows, t->width);
        vf m = vf_select(vf_lt(vf_add(old, vf_set1(SLACK)), top), top, old);
        vm moved = vm_not(vf_eq(m, old));
        /* A lane without a key has m = -inf. With any finite reference, its weights are 2^-inf = 0. */
        vf reference = vf_select(vf_eq(m, none), vf_zero(), m);
        vf shrink = vf_select(moved, vf_exp2(vf_sub(old, reference)), one);
        vf sum = column_exp(t->s + w, t->rows, t->width, reference);
        vf_store(t->l + w, vf_fma(vf_load(t->l + w), shrink, sum));
        vf_store(t->m + w, m);
        vf_store(t->shrink + w, shrink);
        changed = changed || vm_any(moved);
    }
    *t->changed = changed;
}

/* Replaces the scores of a vector of lanes by weights. `squash` is a constant after inlining. */
VF_FN void separate_lanes(const attn__lane_weights *t, int64_t w, bool squash)
{
    vf none = vf_set1(-INFINITY), bias = vf_set1(t->bias), most = none, slope;
    for (int64_t r = 0; r < t->rows; r++) {
        float *s = t->s + r * t->width + w;
        vf x = vf_load(s);
        most = vf_select(vf_eq(x, none), most, vf_zero());
        vf_store(s, squash ? vf_sigmoid(vf_add(x, bias), &slope) : vf_plain_weight(x));
    }
    vm any = vm_not(vf_eq(most, none));
    vf_store(t->m + w, vf_select(any, vf_zero(), vf_load(t->m + w)));
    vf_store(t->l + w, vf_select(any, vf_set1(1.0f), vf_load(t->l + w)));
}

static void separate(const attn__lane_weights *t)
{
    for (int64_t w = 0; w < t->width; w += VF_LANES)
        if (t->squash)
            separate_lanes(t, w, true);
        else
            separate_lanes(t, w, false);
}

static void online_softmax_largest(const attn__lane_largest *t)
{
    for (int64_t w = 0; w < t->width; w += VF_LANES) {
        vf m = vf_load(t->m + w), at = vf_from_bits(vi_load(t->at + w));
        for (int64_t r = 0; r < t->rows; r++) {
            vf x = vf_load(t->s + r * t->width + w);
            vm takes = vm_or(vf_lt(m, x), vm_not(vf_eq(x, x)));
            m = vf_select(takes, x, m);
            at = vf_select(takes, vf_from_bits(vi_set1(t->first + (int32_t)r)), at);
        }
        vf_store(t->m + w, m);
        vf_store((float *)(void *)(t->at + w), at);
    }
}

static void dropout(const attn__lane_dropout *t)
{
    vi threshold = vi_set1((int32_t)t->threshold);
    vf mark = vf_set1(-0.0f);
    for (int64_t w = 0; w < t->width; w += VF_LANES) {
        vi low = vi_load(t->key_low + w), high = vi_load(t->key_high + w);
        for (int64_t r = 0; r < t->rows; r++) {
            float *p = t->p + r * t->width + w;
            vi bits = vi_dropout_bits(vi_set1((int32_t)t->column[r]), low, high);
            vf_store(p, vf_select(vi_ltu(bits, threshold), mark, vf_load(p)));
        }
    }
}

static void online_softmax_scale(float *tile, int64_t rows, int64_t width, const float *factor)
{
    for (int64_t w = 0; w < width; w += VF_LANES) {
        vf f = vf_load(factor + w);
        for (int64_t r = 0; r < rows; r++)
            vf_store(tile + r * width + w, vf_mul(f, vf_load(tile + r * width + w)));
    }
}

const attn__online_softmax_kernel VF_NAME(attn__online_softmax) = {VF_ISA,
                                                                   VF_LANES,
                                                                   gather,
                                                                   scatter,
                                                                   copy,
                                                                   online_softmax_add,
                                                                   softcap,
                                                                   hide,
                                                                   online_softmax_limit,
                                                                   online_softmax_softmax,
                                                                   separate,
                                                                   online_softmax_largest,
                                                                   dropout,
                                                                   online_softmax_scale};
