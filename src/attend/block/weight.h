/* SPDX-License-Identifier: MIT
 *
 * weight.h - what simd/softmax.h makes of a score, for a single number.
 */
#ifndef ATTN_ATTEND_WEIGHT_H
#define ATTN_ATTEND_WEIGHT_H

/* Of score - lse: at most 0, for a log-sum-exp that was rounded may lie below the row's largest score.  NaN stays. */
static inline double attn__log_weight(double difference)
{
    return difference > 0 ? 0 : difference;
}

#endif
