/* SPDX-License-Identifier: MIT
 *
 * scale_range.h - the range of vf_scale2's exponents where a power of two is made as the product of two halves, from
 * their bits.  Include within such a vec_*.h, after vf_min and vf_max.
 */
#ifndef ATTN_SIMD_SCALE_RANGE_H
#define ATTN_SIMD_SCALE_RANGE_H

/* The bounds keep infinities out of the subtraction.  At 254 the result is infinite.  Below -252 one half is 0, where it
 * would be 2^-127: so 2^-254 and less become 0 without an underflow, which takes many cycles.  Right for |p| below
 * 2^100. */
VF_FN vf vf_scale_range(vf x)
{
    return vf_min(vf_set1(254.0f), vf_max(vf_set1(-254.0f), x));
}

#endif
