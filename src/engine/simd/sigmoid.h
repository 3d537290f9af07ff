/* SPDX-License-Identifier: MIT
 *
 * sigmoid.h - computes weights that do not depend on other keys, and their derivatives.  Include after exp.h.
 */
#ifndef ATTN_SIMD_SIGMOID_H
#define ATTN_SIMD_SIGMOID_H

/* Returns 1 / (1 + 2^-x), within 4 units in the last place, and sets *slope to the product of this weight and 1 minus
 * the weight. With e = 2^-|x|, these are 1 / (1 + e) or e / (1 + e), and e / (1 + e)^2. So nothing overflows, and no
 * digits of 1 minus the weight are lost.  Results are never subnormal. -infinity gives 0, and NaN stays NaN. */
VF_FN vf vf_sigmoid(vf x, vf *slope)
{
    vf e = vf_exp2(vf_sub(vf_zero(), vf_abs(x))), one = vf_set1(1.0f);
    vf large = vf_div(one, vf_add(one, e)), small = vf_mul(e, large);
    *slope = vf_mul(large, small);
    return vf_select(vf_lt(x, vf_zero()), small, large);
}

/* Returns the score x, which is in base 2, as a weight. It is never -0. -infinity gives 0. */
VF_FN vf vf_plain_weight(vf x)
{
    vf weight = vf_fma(x, vf_set1(0x1.62e43p-1f), vf_zero());
    return vf_select(vf_eq(x, vf_set1(-INFINITY)), vf_zero(), weight);
}

#endif
