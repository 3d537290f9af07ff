/* SPDX-License-Identifier: MIT
 *
 * weight.h - simd/softmax.h for a single number.
 */
#ifndef ATTN_ATTEND_WEIGHT_H
#define ATTN_ATTEND_WEIGHT_H

#include <math.h>

/* Of score - lse: at most 0, for a log-sum-exp that was rounded may lie below the row's largest score.  NaN stays. */
static inline double attn__log_weight(double difference)
{
    return difference > 0 ? 0 : difference;
}

/* p (dp - delta).  A weight of 0 gives 0 also where the difference overflows; NaN stays. */
static inline float attn__score_gradient(float p, float dp, float delta)
{
    float x = dp - delta;
    return p == 0 && isinf(x) ? 0 : p * x;
}
static inline double attn__score_gradient_double(double p, double dp, double delta)
{
    double x = dp - delta;
    return p == 0 && isinf(x) ? 0 : p * x;
}

#endif
