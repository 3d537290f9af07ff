/* SPDX-License-Identifier: MIT
 *
 * dropout.h - computes the random bits of dropout on vectors.  Include after a vec_*.h.
 */
#ifndef ATTN_SIMD_DROPOUT_H
#define ATTN_SIMD_DROPOUT_H

/* Computes attn__dropout_bits (base/rng.h) for each lane. `low` and `high` are the halves of the row's 64-bit hash. */
VF_FN vi vi_dropout_bits(vi column, vi low, vi high)
{
    vi x = vi_xor(column, low);
    x = vi_xor(vi_mul(vi_xor(x, vi_shr(x, 16)), vi_set1(0x7feb352d)), high);
    x = vi_mul(vi_xor(x, vi_shr(x, 15)), vi_set1((int32_t)0x846ca68bu));
    return vi_xor(x, vi_shr(x, 16));
}

#endif
