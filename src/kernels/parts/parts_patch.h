/* SPDX-License-Identifier: MIT
 *
 * parts_patch.h - two rows of 32 numbers become two rows of tiles in either direction: pairs of the same column of both
 * rows, and of columns i and i + 16 of each row, so that no number changes its lane.  Include after vec_avx512.h.
 */
#ifndef ATTN_KERNELS_PARTS_PATCH_H
#define ATTN_KERNELS_PARTS_PATCH_H

enum { PATCH_ROWS = 2, PATCH_HALVES = 2, PATCH_COLUMNS = PATCH_HALVES * VF_LANES };

typedef struct patch {
    vf x[PATCH_ROWS][PATCH_HALVES];
} patch;

/* Where the parts of a patch go; NULL: not wanted. */
typedef struct places {
    uint16_t *across[PATCH_HALVES], *along[PATCH_ROWS];
    int64_t across_part, along_part;
} places;

/* So that the upper half is the nearest bf16 number; a number that is too large becomes infinite. */
VF_FN vf rounded(vf x)
{
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000)));
}

/* Adds a NaN to `odd` if a number is infinite or NaN. */
VF_FN void note_odd(const patch *x, vf *odd)
{
    VF_UNROLL
    for (int i = 0; i < PATCH_ROWS * PATCH_HALVES; i++)
        *odd = vf_fma(x->x[i / PATCH_HALVES][i % PATCH_HALVES], vf_zero(), *odd);
}

VF_FN void round_patch(patch *x)
{
    VF_UNROLL
    for (int i = 0; i < PATCH_ROWS * PATCH_HALVES; i++) {
        vf *number = &x->x[i / PATCH_HALVES][i % PATCH_HALVES];
        *number = rounded(*number);
    }
}

/* The upper halves in both directions. */
VF_FN void store_upper(const patch *x, const places *to, int part, bool across, bool along)
{
    VF_UNROLL
    for (int i = 0; i < PATCH_ROWS; i++) {
        if (across && to->across[i])
            _mm512_storeu_si512(to->across[i] + part * to->across_part, vf_pair_upper(x->x[0][i], x->x[1][i]));
        if (along)
            _mm512_storeu_si512(to->along[i] + part * to->along_part, vf_pair_upper(x->x[i][0], x->x[i][1]));
    }
}

/* What is left of a patch by the upper halves of another. */
VF_FN void take_upper_away(patch *x, const patch *from)
{
    vi upper = _mm512_set1_epi32((int32_t)0xffff0000u);
    VF_UNROLL
    for (int i = 0; i < PATCH_ROWS * PATCH_HALVES; i++) {
        vf part = from->x[i / PATCH_HALVES][i % PATCH_HALVES];
        vf *number = &x->x[i / PATCH_HALVES][i % PATCH_HALVES];
        *number = vf_sub(*number, _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(part), upper)));
    }
}

#endif
