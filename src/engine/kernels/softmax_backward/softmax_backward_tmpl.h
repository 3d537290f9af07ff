/* SPDX-License-Identifier: MIT
 *
 * softmax_backward_tmpl.h - the kernels of softmax_backward.h for one instruction set.
 */
#include "simd/dropout.h"
#include "simd/softmax.h"
#include "simd/sigmoid.h"
#include "simd/tanh.h"
#include "base/constants.h"

/* What the vectors of a row share. */
typedef struct row_numbers {
    int64_t row;
    vi from, to; /* range of the keys that the row attends */
    vf lse, delta;
} row_numbers;

VF_FN row_numbers row_numbers_of(const attn__softmax_backward_args *t, int64_t row)
{
    bool softmax = t->kind == ATTN__WEIGHTS_SOFTMAX;
    return (row_numbers){row, vi_set1(t->full ? 0 : t->from[row] - t->first),
                         vi_set1(t->full ? (int32_t)t->keys : t->to[row] - t->first),
                         vf_set1(softmax ? t->lse[row] : 0.0f), vf_set1(softmax && t->dp ? t->delta[row] : 0.0f)};
}

/* Returns which lanes the row attends. The lanes are keys from j on, and `column` has their indices. */
VF_FN vm attended(const attn__softmax_backward_args *t, const row_numbers *r, int64_t j, vi column)
{
    int64_t row = r->row;
    vm m = vm_and(vm_not(vi_lt(column, r->from)), vi_lt(column, r->to));
    if (t->mask)
        m = vm_and(m, vi_lt(vi_set1(0), vi_load_u8(t->mask + row * t->ld + j)));
    return m;
}

/* Returns which lanes dropout keeps. The lanes are keys from j on. */
VF_FN vm kept(const attn__softmax_backward_args *t, int64_t row, int64_t j)
{
    uint64_t key = t->drop_key[row];
    vi bits = vi_dropout_bits(vi_load(t->drop_column + j), vi_set1((int32_t)(uint32_t)key),
                              vi_set1((int32_t)(uint32_t)(key >> 32)));
    return vm_not(vi_ltu(bits, vi_set1((int32_t)t->drop_below)));
}

/* Reports whether nothing but the softmax changes scores. Fills need no test, because no key is masked. */
VF_FN bool is_plain(const attn__softmax_backward_args *t)
{
    return t->kind == ATTN__WEIGHTS_SOFTMAX && t->full && !t->mask && t->softcap == 0.0f && !t->bias && !t->dbias &&
           !t->drop_key && !t->alive;
}

/* The members are read once, since they might change with each store. */
VF_FN void weights_plain(const attn__softmax_backward_args *t, bool wanted)
{
    int64_t rows = t->rows, keys = t->keys, ld = t->ld, whole = keys / VF_LANES * VF_LANES;
    vm last = vm_first((int)(keys - whole));
    vf mark = vf_set1(-0.0f);
    float *s = t->s, *dp = t->dp;
    const float *each_lse = t->lse, *each_delta = t->delta;
    for (int64_t row = 0; row < rows; row++, s += ld, dp = wanted ? dp + ld : NULL) {
        vf lse = vf_set1(each_lse[row]), delta = vf_set1(wanted ? each_delta[row] : 0.0f);
        for (int64_t j = 0; j < whole; j += VF_LANES) {
            vf p = vf_exp2(vf_log_weight(vf_load(s + j), lse));
            vf_store(s + j, p);
            if (wanted)
                vf_store(dp + j, vf_score_gradient(p, vf_load(dp + j), delta));
        }
        if (whole == keys)
            continue;
        vf p = vf_select(last, vf_exp2(vf_log_weight(vf_load(s + whole), lse)), mark);
        vf_store(s + whole, p);
        if (wanted)
            vf_store(dp + whole, vf_select(last, vf_score_gradient(p, vf_load(dp + whole), delta), mark));
    }
}

/* Writes flags for products that must skip NaN. Bit 0: the score has a gradient. Bit 1: the weight is used. */
VF_FN void note_alive(uint8_t *alive, vm gradient, vm weight)
{
    vf one = vf_set1(1.0f), two = vf_set1(2.0f), zero = vf_zero();
    float sum[VF_LANES];
    vf_store(sum, vf_add(vf_select(gradient, one, zero), vf_select(weight, two, zero)));
    for (int l = 0; l < VF_LANES; l++)
        alive[l] = (uint8_t)sum[l];
}

/* Returns the capped scores. Sets *slope to the derivative of the softcap. */
VF_FN vf capped(vf x, float cap, vf *slope)
{
    vf t = vf_mul(x, vf_set1(1.0f / cap));
    vf_tanh_small(&t, 1);
    *slope = vf_sub(vf_set1(1.0f), vf_mul(t, t));
    return vf_mul(t, vf_set1(cap));
}

/* Returns the weights of scores x that do not depend on other keys. Sets *slope to their derivatives. */
VF_FN vf separate_weights(const attn__softmax_backward_args *t, vf x, vf *slope)
{
    if (t->kind == ATTN__WEIGHTS_SIGMOID)
        return vf_sigmoid(vf_add(x, vf_set1(t->sigmoid_bias)), slope);
    *slope = vf_set1(1.0f);
    return vf_plain_weight(x);
}

/* What may change scores and weights besides the range, the mask and the softmax. */
enum { MAY_CAP = 1, MAY_BIAS = 2, MAY_OTHERS = 4 };

/* Computes weights and gradients for a vector of keys. `may` is what can be present, a constant after inlining. */
VF_FN void weights_vector(const attn__softmax_backward_args *t, const row_numbers *r, int64_t j, vi lane, unsigned may)
{
    int64_t row = r->row;
    float *s = t->s + row * t->ld + j;
    vi column = vi_add(lane, vi_set1((int32_t)j));
    vf x = vf_load(s), zero = vf_zero(), mark = vf_set1(-0.0f), slope = zero;
    bool caps = (may & MAY_CAP) && t->softcap != 0.0f, others = may & MAY_OTHERS;
    if (caps)
        x = capped(x, t->softcap, &slope);
    if ((may & MAY_BIAS) && t->bias)
        x = vf_fma(vf_load(t->bias + row * t->ld + j), vf_set1((float)ATTN__LOG2E), x);
    vm seen = attended(t, r, j, column), keep = vm_not(vf_lt(zero, zero));
    vm alive = vm_and(seen, vm_not(vf_eq(x, vf_set1(-INFINITY)))), counts = alive;
    bool separate = others && t->kind != ATTN__WEIGHTS_SOFTMAX;
    vf weight = separate ? zero : vf_log_weight(x, r->lse), own_slope = zero;
    if (others && t->fill) {
        counts = vm_or(alive, vm_and(vm_not(seen), vi_lt(column, vi_set1((int32_t)t->keys))));
        weight = vf_select(seen, weight, vf_set1(t->fill[row]));
    }
    vf p = vf_select(counts, separate ? separate_weights(t, x, &own_slope) : vf_exp2(weight), mark);
    if (others && t->fill) {
        counts = vm_or(alive, vm_and(counts, vm_not(vf_eq(p, zero))));
        p = vf_select(counts, p, mark);
    }
    vf dropped = p, dp = t->dp ? vf_load(t->dp + row * t->ld + j) : zero;
    if (others && t->drop_key) {
        keep = kept(t, row, j);
        dropped = vf_select(keep, vf_mul(p, vf_set1(t->drop_scale)), mark);
        dp = vf_select(keep, vf_mul(dp, vf_set1(t->drop_scale)), zero);
    }
    vf_store(s, dropped);
    if (t->dp) {
        vf ds = separate ? vf_add(vf_mul_normal(own_slope, dp), zero) : vf_score_gradient(p, dp, r->delta);
        ds = vf_select(alive, ds, mark);
        if (others && t->dbias)
            vf_store(t->dbias + row * t->ld + j, ds);
        vf_store(t->dp + row * t->ld + j, caps ? vf_select(alive, vf_add(vf_mul_normal(slope, ds), zero), mark) : ds);
    }
    if (others && t->alive)
        note_alive(t->alive + row * t->ld + j, alive, vm_and(counts, keep));
}

/* Runs all rows with a copy of the arguments, whose members need not be read again after each store. */
VF_FN void weights_rows(const attn__softmax_backward_args *args, unsigned may)
{
    attn__softmax_backward_args t = *args;
    static const int32_t lanes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    vi lane = vi_load(lanes); /* of an array on the stack, the load would wait for its stores */
    for (int64_t row = 0; row < t.rows; row++) {
        row_numbers r = row_numbers_of(&t, row);
        for (int64_t j = 0; j < t.keys; j += VF_LANES)
            weights_vector(&t, &r, j, lane, may);
    }
}

static void VF_NAME(weights)(const attn__softmax_backward_args *t)
{
    bool others = t->kind != ATTN__WEIGHTS_SOFTMAX || t->fill || t->drop_key || t->dbias || t->alive;
    if (is_plain(t) && t->dp)
        weights_plain(t, true);
    else if (is_plain(t))
        weights_plain(t, false);
    else if (others || (t->softcap != 0.0f && t->bias))
        weights_rows(t, MAY_CAP | MAY_BIAS | MAY_OTHERS);
    else if (t->softcap != 0.0f)
        weights_rows(t, MAY_CAP);
    else if (t->bias)
        weights_rows(t, MAY_BIAS);
    else
        weights_rows(t, 0);
}

static float VF_NAME(dot)(const float *a, const float *b, int64_t n)
{
    vf sum = vf_zero();
    int64_t i = 0;
    for (; i + VF_LANES <= n; i += VF_LANES)
        sum = vf_fma(vf_load(a + i), vf_load(b + i), sum);
    if (i < n)
        sum = vf_fma(vf_load_part(a + i, (int)(n - i)), vf_load_part(b + i, (int)(n - i)), sum);
    return vf_sum(sum);
}

/* Only the last vector is stored with a mask, because a masked store takes as long as a dozen normal stores on AMD
 * processors. */
static void VF_NAME(store)(float *dst, const float *src, int64_t n, float scale, bool add)
{
    vf factor = vf_set1(scale);
    int64_t i = 0;
    for (; i + VF_LANES <= n; i += VF_LANES) {
        vf x = vf_load(src + i);
        vf_store(dst + i, add ? vf_fma(x, factor, vf_load(dst + i)) : vf_mul(x, factor));
    }
    if (i < n) {
        int part = (int)(n - i);
        vf x = vf_load_part(src + i, part);
        vf_store_part(dst + i, add ? vf_fma(x, factor, vf_load_part(dst + i, part)) : vf_mul(x, factor), part);
    }
}

static void VF_NAME(store_bf16)(uint16_t *dst, const float *src, int64_t n, float scale, bool add)
{
    vf factor = vf_set1(scale);
    int64_t i = 0;
    for (; i + VF_LANES <= n; i += VF_LANES) {
        vf x = vf_load(src + i);
        vf_store_bf16(dst + i, add ? vf_fma(x, factor, vf_load_bf16(dst + i)) : vf_mul(x, factor));
    }
    if (i < n) {
        int part = (int)(n - i);
        vf x = vf_load_part(src + i, part);
        x = add ? vf_fma(x, factor, vf_load_bf16_part(dst + i, part)) : vf_mul(x, factor);
        vf_store_bf16_part(dst + i, x, part);
    }
}

const attn__softmax_backward_kernel VF_NAME(attn__softmax_backward) = {
    VF_ISA, VF_LANES, VF_NAME(weights), VF_NAME(dot), VF_NAME(store), VF_NAME(store_bf16),
};
