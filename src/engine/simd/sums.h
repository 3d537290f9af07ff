/* SPDX-License-Identifier: MIT
 *
 * sums.h - sums over the lanes of several vectors at once.  Include after a vec_*.h.
 */
#ifndef ATTN_SIMD_SUMS_H
#define ATTN_SIMD_SUMS_H

/* Returns the sums over the lanes of VF_LANES vectors: lane i is the sum of x[i]. Each sum adds its upper half of lanes to
 * its lower half, then those by halves, and so on, on every instruction set. */
#define VF_MERGE(shuffle, a, b, low, high) vf_add(shuffle(a, b, low), shuffle(a, b, high))

#if VF_LANES == 16
VF_FN vf vf_sums(const vf *x)
{
    vf y[8], z[4];
    VF_UNROLL
    for (int i = 0; i < 8; i++)
        y[i] = VF_MERGE(_mm512_shuffle_f32x4, x[i / 4 * 8 + i % 4], x[i / 4 * 8 + i % 4 + 4], 0x44, 0xee);
    VF_UNROLL
    for (int i = 0; i < 4; i++)
        z[i] = VF_MERGE(_mm512_shuffle_f32x4, y[i], y[i + 4], 0x88, 0xdd);
    VF_UNROLL
    for (int i = 0; i < 2; i++)
        y[i] = VF_MERGE(_mm512_shuffle_ps, z[2 * i], z[2 * i + 1], 0x44, 0xee);
    return VF_MERGE(_mm512_shuffle_ps, y[0], y[1], 0x88, 0xdd);
}
#elif VF_LANES == 8
VF_FN vf vf_sums(const vf *x)
{
    vf y[4], z[2];
    VF_UNROLL
    for (int i = 0; i < 4; i++)
        y[i] = VF_MERGE(_mm256_permute2f128_ps, x[i], x[i + 4], 0x20, 0x31);
    VF_UNROLL
    for (int i = 0; i < 2; i++)
        z[i] = VF_MERGE(_mm256_shuffle_ps, y[2 * i], y[2 * i + 1], 0x44, 0xee);
    return VF_MERGE(_mm256_shuffle_ps, z[0], z[1], 0x88, 0xdd);
}
#else
VF_FN vf vf_sums(const vf *x)
{
    vf t[VF_LANES];
    VF_UNROLL
    for (int i = 0; i < VF_LANES; i++)
        t[i] = x[i];
    vf_transpose(t);
    VF_UNROLL
    for (int half = VF_LANES / 2; half > 0; half /= 2) {
        VF_UNROLL
        for (int i = 0; i < half; i++)
            t[i] = vf_add(t[i], t[i + half]);
    }
    return t[0];
}
#endif
#undef VF_MERGE

#endif
