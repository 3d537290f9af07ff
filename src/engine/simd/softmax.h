/* SPDX-License-Identifier: MIT
 *
 * softmax.h - computes weights from scores and their log-sum-exp, and gradients of scores.  Include after exp.h or
 * power.h.
 */
#ifndef ATTN_SIMD_SOFTMAX_H
#define ATTN_SIMD_SOFTMAX_H

/* Returns the logarithm of a weight, at most 0. Without this limit, a huge score could give a result far above 0,
 * because a rounded log-sum-exp may be below the row's largest score.  NaN stays NaN. */
VF_FN vf vf_log_weight(vf score, vf lse) { return vf_min(vf_zero(), vf_sub(score, lse)); }

/* Returns a * b for a from 0 to 1. If |a b| is below a threshold from 2^-126 to 1.125 * 2^-126, returns 0, so that the
 * result is never subnormal.  The test adds the bits of a and |b| as integers. This sum is at most the sum for 1 and a
 * |b|, because the bits of a positive float grow about like its logarithm.  If |b| is large or NaN, `least` is negative
 * or NaN, and the product is unchanged. */
VF_FN vf vf_mul_normal(vf a, vf b)
{
    enum { ONE_AND_LEAST = 0x40000000 }; /* the bits of 1 plus the bits of 2^-126 */
    vf least = vf_from_bits(vi_sub(vi_set1(ONE_AND_LEAST), vf_bits(vf_abs(b))));
    return vf_mul_below(a, least, b);
}

/* Returns p (dp - delta) / 2, half the gradient of a score.  dp and delta are halved before the subtraction, because
 * their difference could overflow, and infinity times a weight of 0 would be NaN. */
VF_FN vf vf_half_score_gradient(vf p, vf dp, vf delta)
{
    return vf_mul_normal(p, vf_fma(dp, vf_set1(0.5f), vf_mul(delta, vf_set1(-0.5f))));
}

/* Returns p (dp - delta). The result is never -0, because the sum with +0 is not; -0 marks pairs without gradients. */
VF_FN vf vf_score_gradient(vf p, vf dp, vf delta)
{
    vf half = vf_half_score_gradient(p, dp, delta);
    return vf_fma(half, vf_set1(2.0f), vf_zero());
}

#endif
