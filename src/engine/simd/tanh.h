/* SPDX-License-Identifier: MIT
 *
 * tanh.h - computes the hyperbolic tangent on vectors.  Include after a vec_*.h.
 */
#ifndef ATTN_SIMD_TANH_H
#define ATTN_SIMD_TANH_H

#include "simd/exp.h"

/* Below this |x|, vf_tanh is vf_tanh_near. */
#define VF_TANH_NEAR 0.62f

/* Returns tanh x for |x| below VF_TANH_NEAR as x + x u p(u) with u = x^2. p has degree 4 and minimizes
 * |u p(u) - (tanh(x)/x - 1)|, which is at most 3.8e-9. */
VF_FN vf vf_tanh_near(vf x)
{
    vf u = vf_mul(x, x);
    vf p = vf_set1(-0x1.792566p-8f);
    p = vf_fma(p, u, vf_set1(0x1.52dce0p-6f));
    p = vf_fma(p, u, vf_set1(-0x1.b85794p-5f));
    p = vf_fma(p, u, vf_set1(0x1.1107f2p-3f));
    p = vf_fma(p, u, vf_set1(-0x1.555536p-2f));
    return vf_fma(vf_mul(p, u), x, x);
}

/* Returns tanh x, within 3 units in the last place of the correctly rounded value for every float. It is exact at 0 and
 * at both infinities, and NaN for NaN.  For small |x|, the difference 1 - 2 / (e^2x + 1) would lose digits. */
VF_FN vf vf_tanh(vf x)
{
    vf one = vf_set1(1.0f), a = vf_abs(x);
    vf e = vf_exp2(vf_mul(a, vf_set1(0x1.715476p+1f))); /* 2 log2(e) */
    vf far = vf_sub(one, vf_div(vf_set1(2.0f), vf_add(e, one)));
    far = vf_select(vf_lt(x, vf_zero()), vf_sub(vf_zero(), far), far);
    return vf_select(vf_lt(a, vf_set1(VF_TANH_NEAR)), vf_tanh_near(x), far);
}

/* Replaces n vectors by their vf_tanh. It takes a third of the time if all numbers are near 0, as most scores are that
 * a softcap limits. n is a constant. */
VF_FN void vf_tanh_small(vf *x, int n)
{
    vm far = vm_not(vf_lt(vf_abs(x[0]), vf_set1(VF_TANH_NEAR)));
    VF_UNROLL
    for (int i = 1; i < n; i++)
        far = vm_or(far, vm_not(vf_lt(vf_abs(x[i]), vf_set1(VF_TANH_NEAR))));
    if (vm_any(far)) {
        VF_UNROLL
        for (int i = 0; i < n; i++)
            x[i] = vf_tanh(x[i]);
    } else {
        VF_UNROLL
        for (int i = 0; i < n; i++)
            x[i] = vf_tanh_near(x[i]);
    }
}

#endif
