/* SPDX-License-Identifier: MIT
 *
 * bf16x3_split_rows.c - makes tiles from the parts of rows of numbers; see bf16x3_split_rows.h.
 */
#include "kernels/bf16x3/bf16x3_split_rows.h"

#if defined(__x86_64__)
#include "simd/vec_avx512.h"

#include "kernels/bf16x3/bf16x3_round.h"
#include "simd/amx_tiles.h"

enum { SIDE = ATTN__BF16X3_SIDE, DEPTH = ATTN__BF16X3_DEPTH };

/* The numbers from which a tile of each part is made: columns from c on of 16 rows, or of 32 rows if rows are along
 * k. */
typedef struct block {
    const attn__bf16x3_rows *rows;
    int64_t r, c, high;
    const float *row[DEPTH];
    float _Alignas(64) half[SIDE * SIDE]; /* transposed */
} block;

/* Bound of the sizes of numbers. If a nonzero number is smaller, its third part may be subnormal, which AMX treats as
 * 0. */
#define LEAST 0x1p-102f

/* Adds to `tiny` the lanes of x that are nonzero and below LEAST. */
VF_FN void note_tiny(vf x, vm *tiny)
{
    vf size = _mm512_abs_ps(x);
    *tiny |=
        _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(size, vf_zero(), _CMP_NEQ_UQ), size, vf_set1(LEAST), _CMP_LT_OQ);
}

VF_FN const float *row_of(const block *b, int64_t r)
{
    const attn__bf16x3_rows *rows = b->rows;
    return (const float *)rows->data + (rows->row_at ? rows->row_at[r] : r * rows->ld) + b->c;
}

/* A row that does not exist is replaced by zeros. */
VF_FN void find_rows(block *b)
{
    static const _Alignas(64) float zeros[DEPTH];
    int64_t left = b->rows->rows - b->r, there = left < b->high ? left : b->high;
    for (int64_t i = 0; i < there; i++)
        b->row[i] = row_of(b, b->r + i);
    for (int64_t i = there; i < b->high; i++)
        b->row[i] = zeros;
}

/* Prefetches the first or second half of the rows of a later block. */
VF_FN void prefetch(const block *b, int half, int columns)
{
    int64_t from = b->r + ATTN__BF16X3_SPLIT_NEAR + half * b->high / 2, end = from + b->high / 2;
    for (int64_t r = from; r < end && r < b->rows->rows; r++)
        for (int c = 0; c < columns; c += SIDE)
            __builtin_prefetch(row_of(b, r) + c, 0, 3);
}

/* Loads 16 numbers from `column` on of 16 rows and transposes them. The rows are `every` rows apart. */
VF_FN void load_transposed(const float *const *row, int every, int column, vm lanes, vf tile[SIDE])
{
    VF_UNROLL
    for (int i = 0; i < SIDE; i++)
        tile[i] = _mm512_maskz_loadu_ps(lanes, row[i * every] + column);
    vf_transpose(tile);
}

/* Transposes and splits a block in two halves. The second half is kept in memory, because two halves would take all
 * registers. The halves are halves of the columns if `across` is set, otherwise the even and the odd rows. */
VF_FN void cut_transposed(block *b, bool across, uint16_t *out, const attn__bf16x3_side *to, vf left[2], vm *tiny)
{
    vm first = first_lanes(b->rows->columns - b->c), second = first_lanes(b->rows->columns - b->c - SIDE);
    vf factor = vf_set1(b->rows->factor), tile[SIDE];
    int64_t row = to->row, part = to->part;
    prefetch(b, 0, across ? DEPTH : SIDE);
    load_transposed(across ? b->row : b->row + 1, across ? 1 : 2, across ? SIDE : 0, across ? second : first, tile);
    VF_UNROLL
    for (int i = 0; i < SIDE; i++)
        vf_store(b->half + i * SIDE, tile[i]);
    prefetch(b, 1, across ? DEPTH : SIDE);
    load_transposed(b->row, across ? 1 : 2, 0, first, tile);
    VF_UNROLL
    for (int i = 0; i < SIDE; i++, out += row) {
        vf x = vf_mul(tile[i], factor), y = vf_mul(vf_load(b->half + i * SIDE), factor);
        note_tiny(x, tiny);
        note_tiny(y, tiny);
        cut_rounded(x, y, out, part, &left[0], &left[1]);
    }
}

VF_FN void cut_along(const block *b, uint16_t *out, const attn__bf16x3_side *to, vf left[2], vm *tiny)
{
    vm first = first_lanes(b->rows->columns - b->c), second = first_lanes(b->rows->columns - b->c - SIDE);
    vf factor = vf_set1(b->rows->factor);
    int64_t row = to->row, part = to->part;
    for (int half = 0; half < 2; half++) {
        prefetch(b, half, DEPTH);
        for (int i = half * SIDE / 2; i < (half + 1) * SIDE / 2; i++, out += row) {
            vf x = vf_mul(_mm512_maskz_loadu_ps(first, b->row[i]), factor);
            vf y = vf_mul(_mm512_maskz_loadu_ps(second, b->row[i] + SIDE), factor);
            note_tiny(x, tiny);
            note_tiny(y, tiny);
            cut_rounded(x, y, out, part, &left[0], &left[1]);
        }
    }
}

VF_FN bool cut_all(attn__bf16x3_direction way, const attn__bf16x3_rows *rows, const attn__bf16x3_side *to)
{
    bool transposed = way == ATTN__BF16X3_TRANSPOSED;
    int64_t high = transposed ? DEPTH : SIDE, wide = transposed ? SIDE : DEPTH;
    block b = {.rows = rows, .high = high};
    vf left[2] = {vf_zero(), vf_zero()};
    vm tiny = 0;
    for (b.r = 0; b.r < rows->rows; b.r += high) {
        uint16_t *out = to->data + b.r / high * (transposed ? to->step : to->block);
        for (b.c = 0; b.c < rows->columns; b.c += wide, out += transposed ? to->block : to->step) {
            find_rows(&b);
            if (way == ATTN__BF16X3_ALONG)
                cut_along(&b, out, to, left, &tiny);
            else
                cut_transposed(&b, !transposed, out, to, left, &tiny);
        }
    }
    left[0] = vf_add(left[0], left[1]);
    return tiny == 0 && _mm512_cmp_ps_mask(left[0], left[0], _CMP_UNORD_Q) == 0;
}

bool attn__bf16x3_split_rows(attn__bf16x3_direction way, const attn__bf16x3_rows *rows, const attn__bf16x3_side *to)
{
    if (way == ATTN__BF16X3_ALONG)
        return cut_all(ATTN__BF16X3_ALONG, rows, to);
    return way == ATTN__BF16X3_ACROSS ? cut_all(ATTN__BF16X3_ACROSS, rows, to)
                                      : cut_all(ATTN__BF16X3_TRANSPOSED, rows, to);
}

#include "simd/isa_end.h"
#else
bool attn__bf16x3_split_rows(attn__bf16x3_direction way, const attn__bf16x3_rows *rows, const attn__bf16x3_side *to)
{
    (void)way;
    (void)rows;
    (void)to;
    return false;
}
#endif
