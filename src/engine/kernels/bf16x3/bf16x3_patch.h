/* SPDX-License-Identifier: MIT
 *
 * bf16x3_patch.h - stores two rows of 32 numbers as rows of tiles in two directions. In the direction `across`, a pair
 * has the same column of both rows. In the direction `along`, a pair has columns i and i + 16 of one row. No number
 * changes its lane. Include this file after vec_avx512.h.
 */
#ifndef ATTN_KERNELS_BF16X3_PATCH_H
#define ATTN_KERNELS_BF16X3_PATCH_H

enum { PATCH_ROWS = 2, PATCH_HALVES = 2, PATCH_COLUMNS = PATCH_HALVES * VF_LANES };

typedef struct patch {
    vf x[PATCH_ROWS][PATCH_HALVES];
} patch;

/* Addresses in tiles for the parts of a patch. NULL: the direction is not requested. */
typedef struct places {
    uint16_t *across[PATCH_HALVES], *along[PATCH_ROWS];
    int64_t across_part, along_part;
} places;

/* If any number of the patch is infinite or NaN, makes a lane of `odd` NaN. */
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
        *number = vf_round_upper(*number);
    }
}

/* Stores the upper halves of the numbers as part `part` in the requested directions. */
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

VF_FN void take_upper_away(patch *x, const patch *from)
{
    VF_UNROLL
    for (int i = 0; i < PATCH_ROWS * PATCH_HALVES; i++) {
        vf *number = &x->x[i / PATCH_HALVES][i % PATCH_HALVES];
        *number = vf_beyond_upper(*number, from->x[i / PATCH_HALVES][i % PATCH_HALVES]);
    }
}

#endif
