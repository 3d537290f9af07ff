/* SPDX-License-Identifier: MIT
 *
 * bf16x3_pack.c - makes tiles from rows of numbers in both directions; see bf16x3_pack.h.
 */
#include "kernels/bf16x3/bf16x3_pack.h"

#if defined(__x86_64__)
#include "simd/vec_avx512.h"
#include "kernels/bf16x3/bf16x3_patch.h"

/* EARLY: prefetch distance in pairs of rows. */
enum { STEP = ATTN__BF16X3_DEPTH, SIDE = ATTN__BF16X3_SIDE, EARLY = 2 };

/* Two rows of the caller and their addresses in the tiles. `from` is NULL for a row that does not exist. */
typedef struct row_pair {
    const char *from[PATCH_ROWS];
    uint16_t *along[PATCH_ROWS], *across;
} row_pair;

VF_FN vf load_part(const char *row, attn_dtype dtype, int64_t column, int64_t columns)
{
    int n = (int)(columns - column < VF_LANES ? columns - column : VF_LANES);
    if (!row || n <= 0)
        return vf_zero();
    return dtype == ATTN_F32 ? vf_load_part((const float *)(const void *)row + column, n)
                             : vf_load_bf16_part((const uint16_t *)(const void *)row + column, n);
}

VF_FN vf load_whole(const char *row, attn_dtype dtype, int64_t column)
{
    return dtype == ATTN_F32 ? vf_load((const float *)(const void *)row + column)
                             : vf_load_bf16((const uint16_t *)(const void *)row + column);
}

/* Loads columns j to j + 31 of both rows. */
VF_FN patch load_patch(const attn__bf16x3_pack *t, const row_pair *pair, int64_t j, attn_dtype dtype)
{
    patch x;
    bool whole = pair->from[1] && j + PATCH_COLUMNS <= t->columns;
    VF_UNROLL
    for (int i = 0; i < PATCH_ROWS; i++) {
        VF_UNROLL
        for (int h = 0; h < PATCH_HALVES; h++)
            x.x[i][h] = whole ? load_whole(pair->from[i], dtype, j + h * VF_LANES)
                              : load_part(pair->from[i], dtype, j + h * VF_LANES, t->columns);
    }
    return x;
}

/* Splits 32 columns of a pair of rows into parts and stores them. The last part is exact, because it can hold the whole
 * remainder. */
VF_FN void pack_patch(const attn__bf16x3_pack *t, const row_pair *pair, int64_t j, attn_dtype dtype, int parts,
                      bool along, bool across, vf *odd)
{
    patch x = load_patch(t, pair, j, dtype);
    places to = {.across_part = t->across.part, .along_part = t->along.part};
    if (across) {
        to.across[0] = pair->across + j / SIDE * t->across.block;
        to.across[1] = j + SIDE < t->columns ? to.across[0] + t->across.block : NULL;
    }
    for (int i = 0; i < PATCH_ROWS && along; i++)
        to.along[i] = pair->along[i] + j / STEP * t->along.step;
    note_odd(&x, odd);
    VF_UNROLL
    for (int part = 0; part < parts; part++) {
        patch upper = x;
        if (part + 1 < parts)
            round_patch(&upper);
        if (part == 0 && parts > 1)
            note_odd(&upper, odd);
        store_upper(&upper, &to, part, across, along);
        take_upper_away(&x, &upper);
    }
}

static const char *row_of(const attn__bf16x3_pack *t, int64_t r)
{
    return r < t->rows ? (const char *)t->data + t->row_at[r] * (t->dtype == ATTN_F32 ? 4 : 2) : NULL;
}

/* Returns the pair of rows with index `place`, of the 16 pairs in the step that begins at row s. */
VF_FN row_pair find_pair(const attn__bf16x3_pack *t, int64_t s, int64_t place, bool along, bool across)
{
    int64_t first = t->keyed ? place : 2 * place, second = t->keyed ? place + SIDE : first + 1;
    const attn__bf16x3_side *a = &t->along, *b = &t->across;
    row_pair pair = {.from = {row_of(t, s + first), row_of(t, s + second)}};
    int64_t at[] = {first, second};
    for (int i = 0; i < PATCH_ROWS && along; i++)
        pair.along[i] = a->data + (s + at[i]) / SIDE * a->block + at[i] % SIDE * a->row;
    if (across)
        pair.across = b->data + s / STEP * b->step + place * b->row;
    return pair;
}

/* The hardware does not prefetch far enough ahead here, because stores delay the loads. */
VF_FN void prefetch_pair(const attn__bf16x3_pack *t, int64_t s, int64_t place)
{
    row_pair pair = find_pair(t, s, place, false, false);
    int64_t bytes = t->columns * (t->dtype == ATTN_F32 ? 4 : 2);
    for (int i = 0; i < PATCH_ROWS && pair.from[i]; i++)
        for (int64_t b = 0; b < bytes; b += 64)
            _mm_prefetch(pair.from[i] + b, _MM_HINT_T0);
}

VF_FN bool pack(const attn__bf16x3_pack *t, int64_t from, int64_t end, attn_dtype dtype, int parts, bool along,
                bool across)
{
    vf odd = vf_zero();
    for (int64_t s = from; s < end; s += STEP)
        for (int64_t i = 0; i < SIDE; i++) {
            row_pair pair = find_pair(t, s, i, along, across);
            prefetch_pair(t, s + (i + EARLY) / SIDE * STEP, (i + EARLY) % SIDE);
            for (int64_t j = 0; j < t->columns; j += PATCH_COLUMNS)
                pack_patch(t, &pair, j, dtype, parts, along, across, &odd);
        }
    return !vm_any(vm_not(vf_eq(odd, odd)));
}

VF_FN bool pack_either(const attn__bf16x3_pack *t, int64_t from, int64_t end, attn_dtype dtype, int parts)
{
    if (!t->along.data)
        return pack(t, from, end, dtype, parts, false, true);
    return t->across.data ? pack(t, from, end, dtype, parts, true, true)
                          : pack(t, from, end, dtype, parts, true, false);
}

bool attn__bf16x3_pack_rows(const attn__bf16x3_pack *t, int64_t from, int64_t end)
{
    if (t->dtype == ATTN_BF16)
        return pack_either(t, from, end, ATTN_BF16, 1);
    return t->parts == 1 ? pack_either(t, from, end, ATTN_F32, 1)
                         : pack_either(t, from, end, ATTN_F32, ATTN__BF16X3_F32);
}

#include "simd/isa_end.h"
#else
bool attn__bf16x3_pack_rows(const attn__bf16x3_pack *t, int64_t from, int64_t end)
{
    (void)t;
    (void)from;
    (void)end;
    return false;
}
#endif
