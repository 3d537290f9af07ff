/* SPDX-License-Identifier: MIT
 *
 * scale_range.h - limits the exponents of vf_scale2. Instruction sets need it if they build a power of two from its
 * bits. Include within such a vec_*.h, after vf_min and vf_max.
 */
#ifndef ATTN_SIMD_SCALE_RANGE_H
#define ATTN_SIMD_SCALE_RANGE_H

/* Limits x to [-127, 128], because x - floor(x) would be NaN for an infinite x.  The bits of 2^128 are those of
 * infinity. The bits of 2^-127 are 0, so that the result is 0 without an underflow. */
VF_FN vf vf_scale_range(vf x) { return vf_min(vf_set1(128.0f), vf_max(vf_set1(-127.0f), x)); }

#endif
