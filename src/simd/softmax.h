/* SPDX-License-Identifier: MIT
 *
 * softmax.h - weights again from scores and their log-sum-exp, and what the derivative makes of them.  Include after
 * exp.h or power.h.
 */
#ifndef ATTN_SIMD_SOFTMAX_H
#define ATTN_SIMD_SOFTMAX_H

/* The logarithm of a weight is at most 0, but a log-sum-exp that was rounded may lie below the row's largest score, by
 * many powers of two where scores are huge.  NaN stays. */
VF_FN vf vf_log_weight(vf score, vf lse)
{
    return vf_min(vf_zero(), vf_sub(score, lse));
}

/* p (dp - delta): the gradient of a score.  Of halves, which are exact: the difference of two finite numbers may
 * overflow, and a weight of 0 would make a NaN of that. */
VF_FN vf vf_score_gradient(vf p, vf dp, vf delta)
{
    return vf_mul(vf_add(p, p), vf_fma(dp, vf_set1(0.5f), vf_mul(delta, vf_set1(-0.5f))));
}

#endif
