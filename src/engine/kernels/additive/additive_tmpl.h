/* SPDX-License-Identifier: MIT
 *
 * additive_tmpl.h - the kernels of additive.h for one instruction set.  Every loop first processes two vectors per
 * iteration, to hide the latency of its sums. A single vector and a partial vector may follow.
 */
#include "simd/tanh.h"
#include "simd/vec_f64.h"

static float additive_dot(const float *a, const float *b, int64_t n)
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

VF_FN vd additive_widen(const float *p)
{
    typedef float half __attribute__((vector_size(sizeof(vd) / 2)));
    half x;
    memcpy(&x, p, sizeof x);
    return __builtin_convertvector(x, vd);
}

static double additive_dot_f64(const float *a, const float *b, int64_t n)
{
    vd s = vd_zero(), t = vd_zero();
    double lanes[VD_LANES], sum = 0;
    int64_t i = 0;
    for (; i + 2 * VD_LANES <= n; i += 2 * VD_LANES) {
        s = vd_fma(additive_widen(a + i), additive_widen(b + i), s);
        t = vd_fma(additive_widen(a + i + VD_LANES), additive_widen(b + i + VD_LANES), t);
    }
    for (; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    vd_store(lanes, vd_add(s, t));
    for (int j = 0; j < VD_LANES; j++)
        sum += lanes[j];
    return sum;
}

VF_FN vf additive_load(const float *p, int n)
{
    return n == VF_LANES ? vf_load(p) : vf_load_part(p, n);
}

VF_FN void additive_store(float *p, vf x, int n)
{
    if (n == VF_LANES)
        vf_store(p, x);
    else
        vf_store_part(p, x, n);
}

VF_FN vf additive_step(const float *q, const float *k, const float *w, float *t, vf sum, int n)
{
    vf x = vf_tanh(vf_add(additive_load(q, n), additive_load(k, n)));
    additive_store(t, x, n);
    return vf_fma(additive_load(w, n), x, sum);
}

static float additive(const float *q, const float *k, const float *w, float *t, int64_t n)
{
    vf s = vf_zero(), r = vf_zero();
    int64_t i = 0;
    for (; i + 2 * VF_LANES <= n; i += 2 * VF_LANES) {
        const int64_t j = i + VF_LANES;
        s = additive_step(q + i, k + i, w + i, t + i, s, VF_LANES);
        r = additive_step(q + j, k + j, w + j, t + j, r, VF_LANES);
    }
    for (; i + VF_LANES <= n; i += VF_LANES)
        s = additive_step(q + i, k + i, w + i, t + i, s, VF_LANES);
    if (i < n)
        r = additive_step(q + i, k + i, w + i, t + i, r, (int)(n - i));
    return vf_sum(vf_add(s, r));
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

static void additive_scale(float a, float *y, int64_t n)
{
    vf f = vf_set1(a);
    int64_t i = 0;
    for (; i + VF_LANES <= n; i += VF_LANES)
        vf_store(y + i, vf_mul(f, vf_load(y + i)));
    if (i < n)
        vf_store_part(y + i, vf_mul(f, vf_load_part(y + i, (int)(n - i))), (int)(n - i));
}

VF_FN void additive_gradient_step(vf g, const float *w, const float *t, float *dq, float *dk, float *dw, int n)
{
    vf x = additive_load(t, n);
    vf d = vf_mul(vf_mul(g, additive_load(w, n)), vf_fnma(x, x, vf_set1(1.0f)));
    additive_store(dw, vf_fma(g, x, additive_load(dw, n)), n);
    additive_store(dq, vf_add(additive_load(dq, n), d), n);
    additive_store(dk, vf_add(additive_load(dk, n), d), n);
}

static void additive_gradient(float g, const float *w, const float *t, float *dq, float *dk, float *dw, int64_t n)
{
    vf f = vf_set1(g);
    int64_t i = 0;
    for (; i + VF_LANES <= n; i += VF_LANES)
        additive_gradient_step(f, w + i, t + i, dq + i, dk + i, dw + i, VF_LANES);
    if (i < n)
        additive_gradient_step(f, w + i, t + i, dq + i, dk + i, dw + i, (int)(n - i));
}

const attn__additive_kernel VF_NAME(attn__additive) = {VF_ISA,         additive_dot, additive_dot_f64, axpy,
                                                       additive_scale, additive,     additive_gradient};
