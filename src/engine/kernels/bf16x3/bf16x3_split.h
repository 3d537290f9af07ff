/* SPDX-License-Identifier: MIT
 *
 * bf16x3_split.h - makes tiles from the parts of the caller's numbers; included by bf16x3.c within its region of the
 * instruction set.
 */

/* 32 numbers in two vectors, which become a row of a tile. */
typedef struct two {
    __m512 first, second;
} two;

BF16X3_FN const char *row_of(const attn__bf16x3_rows *rows, int64_t r)
{
    int64_t at = rows->row_at ? rows->row_at[r] : r * rows->ld;
    return (const char *)rows->data + at * (rows->dtype == ATTN_F32 ? 4 : 2);
}

BF16X3_FN __m512 load_f32(const attn__bf16x3_rows *rows, const char *row, int64_t column)
{
    if (!row)
        return _mm512_setzero_ps();
    __m512 x = _mm512_maskz_loadu_ps(first_lanes(rows->columns - column), (const float *)(const void *)row + column);
    return _mm512_mul_ps(x, _mm512_set1_ps(rows->factor));
}

BF16X3_FN __m512 widen(__m256i half)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* Returns the exact remainder of x after its bf16 part. */
BF16X3_FN two left_of(two x, __m512i part)
{
    return (two){_mm512_sub_ps(x.first, widen(_mm512_castsi512_si256(part))),
                 _mm512_sub_ps(x.second, widen(_mm512_extracti64x4_epi64(part, 1)))};
}

/* Returns the exact remainder of x after a part, in which the numbers are stored as pairs of lanes of both vectors. */
BF16X3_FN two left_of_pairs(two x, __m512i part)
{
    __m512i high = _mm512_set1_epi32((int32_t)0xffff0000u);
    return (two){_mm512_sub_ps(x.first, _mm512_castsi512_ps(_mm512_slli_epi32(part, 16))),
                 _mm512_sub_ps(x.second, _mm512_castsi512_ps(_mm512_and_si512(part, high)))};
}

/* Splits 32 numbers and writes one row of a tile for each part. Returns false if a number is not finite. */
BF16X3_FN bool split(two x, int parts, uint16_t *out, int64_t next, bool pairs)
{
    __m512i order = vi_order_of_pairs();
    bool finite = true;
    for (int i = 0; i < parts; i++) {
        __m512i part = (__m512i)_mm512_cvtne2ps_pbh(x.second, x.first);
        if (pairs)
            part = _mm512_permutexvar_epi16(order, part);
        if (i == 0)
            finite = !vi_any_not_finite(part);
        _mm512_storeu_si512(out + i * next, part);
        x = pairs ? left_of_pairs(x, part) : left_of(x, part);
    }
    return finite;
}

/* Copies one row of a tile from bf16 numbers. Returns false if a number is not finite. */
BF16X3_FN bool copy_bf16(const attn__bf16x3_rows *rows, const char *row, int64_t column, uint16_t *out)
{
    int64_t left = rows->columns - column;
    __mmask32 some = !row ? 0u : left >= 32 ? 0xffffffffu : (1u << left) - 1u;
    const uint16_t *at = row ? (const uint16_t *)(const void *)row + column : NULL;
    __m512i x = _mm512_maskz_loadu_epi16(some, at);
    _mm512_storeu_si512(out, x);
    return !vi_any_not_finite(x);
}

static bool split_row(const attn__bf16x3_rows *rows, const attn__bf16x3_side *to, int64_t r, int64_t begin, int64_t end)
{
    bool finite = true;
    const char *row = r < rows->rows ? row_of(rows, r) : NULL;
    uint16_t *out = to->data + r / ATTN__BF16X3_SIDE * to->block + r % ATTN__BF16X3_SIDE * to->row;
    out += begin / ATTN__BF16X3_DEPTH * to->step;
    for (int64_t c = begin; c < end; c += ATTN__BF16X3_DEPTH, out += to->step) {
        if (rows->dtype == ATTN_BF16) {
            finite = copy_bf16(rows, row, c, out) && finite;
        } else {
            two x = {load_f32(rows, row, c), load_f32(rows, row, c + 16)};
            finite = split(x, rows->parts, out, to->part, false) && finite;
        }
    }
    return finite;
}

static bool split_rows(const attn__bf16x3_rows *rows, const attn__bf16x3_side *to)
{
    bool finite = true;
    int64_t whole = (rows->rows + ATTN__BF16X3_SIDE - 1) / ATTN__BF16X3_SIDE * ATTN__BF16X3_SIDE;
    for (int64_t r = 0; r < whole; r++)
        finite = split_row(rows, to, r, 0, rows->columns) && finite;
    return finite;
}

BF16X3_FN __m512i load_bf16(const attn__bf16x3_rows *rows, const char *row, int64_t column)
{
    __mmask16 some = row ? first_lanes(rows->columns - column) : (__mmask16)0;
    const uint16_t *at = row ? (const uint16_t *)(const void *)row + column : NULL;
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, at));
}

BF16X3_FN bool pair_bf16(const attn__bf16x3_rows *rows, const char *even, const char *odd, int64_t column,
                         uint16_t *out)
{
    __m512i x = _mm512_or_si512(load_bf16(rows, even, column), _mm512_slli_epi32(load_bf16(rows, odd, column), 16));
    _mm512_storeu_si512(out, x);
    return !vi_any_not_finite(x);
}

/* Writes the tiles of all parts from 32 rows beginning at r and 16 columns. Returns false if a number is not finite. */
BF16X3_FN bool split_pairs_tile(const attn__bf16x3_rows *rows, int64_t r, int64_t column, const attn__bf16x3_side *to,
                                uint16_t *out)
{
    bool finite = true;
    for (int64_t end = r + ATTN__BF16X3_DEPTH; r < end; r += 2, out += to->row) {
        const char *even = r < rows->rows ? row_of(rows, r) : NULL,
                   *odd = r + 1 < rows->rows ? row_of(rows, r + 1) : NULL;
        if (rows->dtype == ATTN_BF16) {
            finite = pair_bf16(rows, even, odd, column, out) && finite;
        } else {
            two x = {load_f32(rows, even, column), load_f32(rows, odd, column)};
            finite = split(x, rows->parts, out, to->part, true) && finite;
        }
    }
    return finite;
}

static bool split_pairs(const attn__bf16x3_rows *rows, const attn__bf16x3_side *to)
{
    bool finite = true;
    for (int64_t r = 0; r < rows->rows; r += ATTN__BF16X3_DEPTH) {
        uint16_t *out = to->data + r / ATTN__BF16X3_DEPTH * to->step;
        for (int64_t c = 0; c < rows->columns; c += ATTN__BF16X3_SIDE, out += to->block)
            finite = split_pairs_tile(rows, r, c, to, out) && finite;
    }
    return finite;
}

static void transpose(uint16_t *tiles, int64_t count)
{
    transpose_tiles((float *)(void *)tiles, count);
}
