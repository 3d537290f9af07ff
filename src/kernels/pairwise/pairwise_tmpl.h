/* SPDX-License-Identifier: MIT
 *
 * pairwise_tmpl.h - rows of channels for one instruction set; see pairwise.h.  Every loop takes two vectors a
 * round while it can, to hide the latency of its sums, then one, then the part that is left.
 */
#include "simd/tanh.h"

static float pairwise_dot(const float *a, const float *b, int64_t n)
{
    vf s = vf_zero(), t = vf_zero();
    int64_t i = 0;
    for (; i + 2 * VF_LANES <= n; i += 2 * VF_LANES) {
        s = vf_fma(vf_load(a + i), vf_load(b + i), s);
        t = vf_fma(vf_load(a + i + VF_LANES), vf_load(b + i + VF_LANES), t);
    }
    for (; i + VF_LANES <= n; i += VF_LANES)
        s = vf_fma(vf_load(a + i), vf_load(b + i), s);
    if (i < n)
        t = vf_fma(vf_load_part(a + i, (int)(n - i)), vf_load_part(b + i, (int)(n - i)), t);
    return vf_sum(vf_add(s, t));
}

static float additive(const float *q, const float *k, const float *w, int64_t n)
{
    vf s = vf_zero(), t = vf_zero();
    int64_t i = 0;
    for (; i + 2 * VF_LANES <= n; i += 2 * VF_LANES) {
        const int64_t j = i + VF_LANES;
        s = vf_fma(vf_load(w + i), vf_tanh(vf_add(vf_load(q + i), vf_load(k + i))), s);
        t = vf_fma(vf_load(w + j), vf_tanh(vf_add(vf_load(q + j), vf_load(k + j))), t);
    }
    for (; i + VF_LANES <= n; i += VF_LANES)
        s = vf_fma(vf_load(w + i), vf_tanh(vf_add(vf_load(q + i), vf_load(k + i))), s);
    if (i < n) {
        int part = (int)(n - i);
        t = vf_fma(vf_load_part(w + i, part), vf_tanh(vf_add(vf_load_part(q + i, part), vf_load_part(k + i, part))), t);
    }
    return vf_sum(vf_add(s, t));
}

static void axpy(float a, const float *x, float *y, int64_t n)
{
    vf f = vf_set1(a);
    int64_t i = 0;
    for (; i + VF_LANES <= n; i += VF_LANES)
        vf_store(y + i, vf_fma(f, vf_load(x + i), vf_load(y + i)));
    if (i < n) {
        int part = (int)(n - i);
        vf_store_part(y + i, vf_fma(f, vf_load_part(x + i, part), vf_load_part(y + i, part)), part);
    }
}

static void pairwise_scale(float a, float *y, int64_t n)
{
    vf f = vf_set1(a);
    int64_t i = 0;
    for (; i + VF_LANES <= n; i += VF_LANES)
        vf_store(y + i, vf_mul(f, vf_load(y + i)));
    if (i < n)
        vf_store_part(y + i, vf_mul(f, vf_load_part(y + i, (int)(n - i))), (int)(n - i));
}

typedef struct additive_terms {
    vf w, pre; /* of dw, and of dq and dk */
} additive_terms;

VF_FN additive_terms additive_term(vf g, vf q, vf k, vf w)
{
    vf t = vf_tanh(vf_add(q, k));
    vf slope = vf_fnma(t, t, vf_set1(1.0f));
    return (additive_terms){vf_mul(g, t), vf_mul(vf_mul(g, w), slope)};
}

static void additive_gradient(float g, const float *q, const float *k, const float *w, float *dq, float *dk, float *dw,
                              int64_t n)
{
    vf f = vf_set1(g);
    int64_t i = 0;
    for (; i + VF_LANES <= n; i += VF_LANES) {
        additive_terms d = additive_term(f, vf_load(q + i), vf_load(k + i), vf_load(w + i));
        vf_store(dw + i, vf_add(vf_load(dw + i), d.w));
        vf_store(dq + i, vf_add(vf_load(dq + i), d.pre));
        vf_store(dk + i, vf_add(vf_load(dk + i), d.pre));
    }
    if (i < n) {
        int part = (int)(n - i);
        additive_terms d =
            additive_term(f, vf_load_part(q + i, part), vf_load_part(k + i, part), vf_load_part(w + i, part));
        vf_store_part(dw + i, vf_add(vf_load_part(dw + i, part), d.w), part);
        vf_store_part(dq + i, vf_add(vf_load_part(dq + i, part), d.pre), part);
        vf_store_part(dk + i, vf_add(vf_load_part(dk + i, part), d.pre), part);
    }
}

const attn__pairwise_kernel VF_NAME(attn__pairwise) = {VF_ISA, pairwise_dot,   additive,
                                                       axpy,   pairwise_scale, additive_gradient};
