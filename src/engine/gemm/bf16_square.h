/* SPDX-License-Identifier: MIT
 *
 * bf16_square.h - packing for AVX-512 BF16 and AMX. It converts squares of 16 rows or columns by 16 pairs along k. The
 * input is bf16, or f32 that is rounded to bf16.  Include within a region of the instruction set.
 */
#ifndef ATTN_GEMM_BF16_SQUARE_H
#define ATTN_GEMM_BF16_SQUARE_H

/* BF16_ROWS: rows of A per panel of the kernel for AVX-512 BF16 without AMX */
enum { BF16_SIDE = 16, BF16_STEP = 2 * BF16_SIDE, BF16_ROWS = 12 };

/* Loads up to 32 numbers along k from x[at] on. If there are fewer than 32, zeros follow. */
VF_FN vi bf16_along_k(const attn__gemm_pack *p, int64_t at, int64_t n)
{
    __mmask32 some = n >= BF16_STEP ? 0xffffffffu : (1u << n) - 1;
    if (p->inner == 1 && p->bf16)
        return _mm512_maskz_loadu_epi16(some, (const uint16_t *)p->x + at);
    if (p->inner == 1) {
        const float *x = (const float *)p->x + at;
        vf low = _mm512_maskz_loadu_ps((__mmask16)some, x);
        vf high = some >> BF16_SIDE ? _mm512_maskz_loadu_ps((__mmask16)(some >> BF16_SIDE), x + BF16_SIDE) : vf_zero();
        return (vi)_mm512_cvtne2ps_pbh(high, low);
    }
    _Alignas(64) uint16_t numbers[BF16_STEP] = {0};
    for (int64_t i = 0; i < n && i < BF16_STEP; i++, at += p->inner)
        if (p->bf16)
            numbers[i] = ((const uint16_t *)p->x)[at];
        else
            vf_store_bf16_part(&numbers[i], vf_set1(((const float *)p->x)[at]), 1);
    return vi_load(numbers);
}

/* Loads the pairs (k, k + 1) of up to 16 adjacent columns from x[at] on. If `second` is not set, the second number of
 * each pair is zero. */
VF_FN vi bf16_pairs(const attn__gemm_pack *p, int64_t at, int n, bool second)
{
    vm some = vm_first(n), some2 = second ? some : 0;
    if (p->bf16) {
        const uint16_t *x = (const uint16_t *)p->x + at;
        vi low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, x));
        vi high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some2, x + p->inner));
        return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
    }
    const float *x = (const float *)p->x + at;
    vf low = _mm512_maskz_loadu_ps(some, x), high = _mm512_maskz_loadu_ps(some2, x + p->inner);
    return _mm512_permutexvar_epi16(vi_order_of_pairs(), (vi)_mm512_cvtne2ps_pbh(high, low));
}

/* Converts a square of f32, which begins at x[at] and has `rows` rows of BF16_STEP numbers. Without the branches of
 * bf16_square it is faster. The square must be whole, and `rows` must be a constant. */
VF_FN void bf16_whole_square(const attn__gemm_pack *p, int64_t at, int rows, bool by_pairs, vf r[BF16_SIDE])
{
    const float *x = (const float *)p->x + at;
    VF_UNROLL
    for (int i = 0; i < BF16_SIDE; i++, x += p->outer)
        r[i] = i < rows ? vf_from_bits((vi)_mm512_cvtne2ps_pbh(vf_load(x + BF16_SIDE), vf_load(x))) : vf_zero();
    if (by_pairs)
        vf_transpose(r);
}

/* Loads the square that begins at row or column `first` and at k. The matrix has n rows or columns from `first` on.
 * Elements outside of the matrix become zero. r[i] is row i or, if `by_pairs` is set, the i-th pair of every row. */
VF_FN void bf16_square(const attn__gemm_pack *p, int64_t first, int64_t n, int64_t k, bool by_pairs, vf r[BF16_SIDE])
{
    int64_t at = first * p->outer + k * p->inner, left = p->k - k;
    bool adjacent = p->outer == 1 && p->inner != 1;
    bool whole = p->inner == 1 && !p->bf16 && left >= BF16_STEP;
    int columns = n < BF16_SIDE ? n > 0 ? (int)n : 0 : BF16_SIDE;
    if (whole && columns == BF16_SIDE) {
        bf16_whole_square(p, at, BF16_SIDE, by_pairs, r);
        return;
    }
    if (whole && columns == BF16_ROWS) {
        bf16_whole_square(p, at, BF16_ROWS, by_pairs, r);
        return;
    }
    VF_UNROLL
    for (int i = 0; i < BF16_SIDE; i++) {
        vi numbers = vi_set1(0);
        if (adjacent && 2 * i < left)
            numbers = bf16_pairs(p, at + 2 * i * p->inner, columns, 2 * i + 1 < left);
        else if (!adjacent && i < columns)
            numbers = bf16_along_k(p, at + i * p->outer, left);
        r[i] = vf_from_bits(numbers);
    }
    if (by_pairs != adjacent)
        vf_transpose(r);
}

#endif
