/* SPDX-License-Identifier: MIT
 *
 * scale_range.h - the range of vf_scale2's exponents where a power of two is made from its bits.  Include within such a
 * vec_*.h, after vf_min and vf_max.
 */
#ifndef ATTN_SIMD_SCALE_RANGE_H
#define ATTN_SIMD_SCALE_RANGE_H

/* The bounds keep infinities out of the subtraction.  The bits of 2^128 are those of infinity; those of 2^-127 are 0,
 * which makes the result 0 without an underflow. */
VF_FN vf vf_scale_range(vf x)
{
    return vf_min(vf_set1(128.0f), vf_max(vf_set1(-127.0f), x));
}

#endif
