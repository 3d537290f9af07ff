/* SPDX-License-Identifier: MIT
 *
 * exp.h - computes exponentials on vectors.  Include after a vec_*.h.
 */
#ifndef ATTN_SIMD_EXP_H
#define ATTN_SIMD_EXP_H

/* Returns 2^x, within 2 units in the last place of the true value for every float from -126 on. It is exact for
 * integers, 0 below -126, +infinity for 128 and above, and NaN for NaN.  Results are never subnormal, because a product
 * with a subnormal number takes a hundred cycles or more on Intel's processors.
 *
 * 2^floor(x) is a shift of the exponent.  For the fraction f in [0, 1] the polynomial is
 *
 *     p(f) = 1 + f + f (1 - f) q(f),    q of degree 4,
 *
 * so that p(0) = 1 and, except for rounding, p(1) = 2. A largest score therefore gets weight 1, and a tiny negative x,
 * whose fraction rounds to 1, needs no special case.  q minimizes the largest |p(f) / 2^f - 1| (Remez' exchange), which
 * is 2.3e-9.  (With a q of degree 3 it would be 9.3e-8, which alone is 1.5 units just below a power of two.)  The other
 * errors are roundings. For f near 1, the last sum has an error of 1/2 unit. The sum before it, its constant and f have
 * 1/4 unit each. The inner terms have less. On `scalar`, each product adds at most 1/4. */
VF_FN vf vf_exp2(vf x)
{
    vf f = vf_fraction(x);
    vf p = vf_set1(0x1.c765a2p-13f);
    p = vf_fma(p, f, vf_set1(0x1.462152p-10f));
    p = vf_fma(p, f, vf_set1(0x1.3d217cp-7f));
    p = vf_fma(p, f, vf_set1(0x1.c686b4p-5f));
    p = vf_fma(p, f, vf_set1(0x1.ebfd74p-3f));
    p = vf_fma(p, f, vf_set1(0x1.62e42ap-1f));
    p = vf_fma(p, f, vf_set1(1.0f));
    return vf_scale2(p, x);
}

#endif
