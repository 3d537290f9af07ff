/* SPDX-License-Identifier: MIT
 *
 * softmax.h - weights again from scores and their log-sum-exp, and what the derivative makes of them.  Include after
 * exp.h or power.h.
 */
#ifndef ATTN_SIMD_SOFTMAX_H
#define ATTN_SIMD_SOFTMAX_H

/* The logarithm of a weight is at most 0, but a log-sum-exp that was rounded may be below the row's largest score, by
 * many powers of two where scores are huge.  NaN stays. */
VF_FN vf vf_log_weight(vf score, vf lse)
{
    return vf_min(vf_zero(), vf_sub(score, lse));
}

/* a b for a from 0 to 1, but 0 where |a b| is below 2^-126, or somewhere below 1.125 times that: never subnormal.  The
 * bits of a positive float, as an integer, grow about as its logarithm does: those of a and |b| are together at most those
 * of 1 and of a |b|.  Where |b| is large or NaN `least` is negative or NaN, and the product is as it is. */
VF_FN vf vf_mul_normal(vf a, vf b)
{
    enum { ONE_AND_LEAST = 0x40000000 }; /* the bits of 1 plus those of 2^-126 */
    vf least = vf_from_bits(vi_sub(vi_set1(ONE_AND_LEAST), vf_bits(vf_abs(b))));
    return vf_mul_below(a, least, b);
}

/* p (dp - delta) / 2: half the gradient of a score, which is an operand of products.  Computed with halves, which are
 * exact: the difference of two finite numbers may overflow, and a weight of 0 would make a NaN of that. */
VF_FN vf vf_half_score_gradient(vf p, vf dp, vf delta)
{
    return vf_mul_normal(p, vf_fma(dp, vf_set1(0.5f), vf_mul(delta, vf_set1(-0.5f))));
}

VF_FN vf vf_score_gradient(vf p, vf dp, vf delta)
{
    vf half = vf_half_score_gradient(p, dp, delta);
    return vf_add(half, half);
}

#endif
