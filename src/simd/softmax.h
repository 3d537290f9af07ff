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

/* p (dp - delta): the gradient of a score.  A weight of 0 gives 0 also where the difference overflows; NaN stays. */
VF_FN vf vf_score_gradient(vf p, vf dp, vf delta)
{
    vf x = vf_sub(dp, delta);
    vm nothing = vm_and(vf_eq(p, vf_zero()), vf_eq(vf_abs(x), vf_set1(INFINITY)));
    return vf_select(nothing, vf_zero(), vf_mul(p, x));
}

#endif
