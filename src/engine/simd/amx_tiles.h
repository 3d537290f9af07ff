/* SPDX-License-Identifier: MIT
 *
 * amx_tiles.h - vector functions that prepare AMX tiles.  Include after vec_avx512.h.
 */
#ifndef ATTN_SIMD_AMX_TILES_H
#define ATTN_SIMD_AMX_TILES_H

/* Returns the mask of the first n lanes: no lane if n < 1, all lanes if n >= 16. */
VF_FN vm first_lanes(int64_t n) { return n >= VF_LANES ? (vm)0xffff : n <= 0 ? (vm)0 : vm_first((int)n); }

/* Transposes tiles of 16 by 16 units of 32 bits. The units may have any type, because they are only moved. */
VF_FN void transpose_tiles(float *tile, int64_t count)
{
    for (int64_t i = 0; i < count; i++, tile += VF_LANES * VF_LANES) {
        vf row[VF_LANES];
        VF_UNROLL
        for (int r = 0; r < VF_LANES; r++)
            row[r] = vf_load(tile + r * VF_LANES);
        vf_transpose(row);
        VF_UNROLL
        for (int r = 0; r < VF_LANES; r++)
            vf_store(tile + r * VF_LANES, row[r]);
    }
}

#endif
