/* SPDX-License-Identifier: MIT
 *
 * bf16x3_round.h - splits pairs of numbers into three rounded parts. Include this file after vec_avx512.h.
 */
#ifndef ATTN_KERNELS_BF16X3_ROUND_H
#define ATTN_KERNELS_BF16X3_ROUND_H

/* Splits the pairs (a, b) of all lanes and writes one row of a tile for each part. The first two parts are rounded, and
 * the third is the exact remainder. If a number is not finite or rounds to infinity, its remainder is inf - inf = NaN,
 * and so odd_a (for a) or odd_b (for b) becomes NaN. odd_a and odd_b may be the same vector. */
VF_FN void cut_rounded(vf a, vf b, uint16_t *out, int64_t part, vf *odd_a, vf *odd_b)
{
    VF_UNROLL
    for (int i = 0; i + 1 < ATTN__BF16X3_F32; i++, out += part) {
        vf near_a = vf_round_upper(a), near_b = vf_round_upper(b);
        _mm512_storeu_si512(out, vf_pair_upper(near_a, near_b));
        a = vf_beyond_upper(a, near_a);
        b = vf_beyond_upper(b, near_b);
    }
    _mm512_storeu_si512(out, vf_pair_upper(a, b));
    *odd_a = vf_fma(a, vf_zero(), *odd_a);
    *odd_b = vf_fma(b, vf_zero(), *odd_b);
}

#endif
