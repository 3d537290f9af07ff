/* SPDX-License-Identifier: MIT
 *
 * tanh.h - computes the hyperbolic tangent on vectors.  Include after a vec_*.h.
 */
#ifndef ATTN_SIMD_TANH_H
#define ATTN_SIMD_TANH_H

#include "simd/exp.h"

/* Returns tanh x, within 3 units in the last place of the correctly rounded value for every float. It is exact at 0 and
 * at both infinities, and NaN for NaN.
 *
 * For |x| below 0.62, the difference 1 - 2 / (e^2x + 1) would lose digits. There tanh x is computed as x + x u p(u)
 * with u = x^2. p has degree 4 and minimizes |u p(u) - (tanh(x)/x - 1)|, which is at most 3.8e-9. */
VF_FN vf vf_tanh(vf x)
{
    vf u = vf_mul(x, x);
    vf p = vf_set1(-0x1.792566p-8f);
    p = vf_fma(p, u, vf_set1(0x1.52dce0p-6f));
    p = vf_fma(p, u, vf_set1(-0x1.b85794p-5f));
    p = vf_fma(p, u, vf_set1(0x1.1107f2p-3f));
    p = vf_fma(p, u, vf_set1(-0x1.555536p-2f));
    vf near = vf_fma(vf_mul(p, u), x, x);
    vf one = vf_set1(1.0f), a = vf_abs(x);
    vf e = vf_exp2(vf_mul(a, vf_set1(0x1.715476p+1f))); /* 2 log2(e) */
    vf far = vf_sub(one, vf_div(vf_set1(2.0f), vf_add(e, one)));
    far = vf_select(vf_lt(x, vf_zero()), vf_sub(vf_zero(), far), far);
    return vf_select(vf_lt(a, vf_set1(0.62f)), near, far);
}

#endif
