/* SPDX-License-Identifier: MIT
 *
 * normal.h - replaces subnormal numbers by 0. An operation on a subnormal number takes a hundred cycles or more on
 * Intel's processors.
 */
#ifndef ATTN_BASE_NORMAL_H
#define ATTN_BASE_NORMAL_H

#include <float.h>
#include <math.h>

/* Returns x, or 0 if |x| is below 2^-126. A NaN remains a NaN. */
static inline float attn__normal(float x)
{
    return fabsf(x) < FLT_MIN ? 0.0f : x;
}

#endif
