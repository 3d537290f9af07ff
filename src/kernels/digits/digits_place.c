/* SPDX-License-Identifier: MIT
 *
 * digits_place.c - numbers of images and of their kernels to digits, as convolutions have them; see digits.h.
 */
#include "kernels/digits/digits_cut.h"

#include "base/cpu.h"

#include <math.h>
#include <string.h>

#if ATTN__COMPILES_AMX
#include "simd/vec_avx512.h"

#include "kernels/tiles.h"
#include "simd/isa_end.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx2,fma"))),        \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx2,fma")
#endif

#include "kernels/digits/digits_number.h"

/* Rows are an image's plane apart: nothing but this asks for the next ones. */
enum { AHEAD = 12 };

CUT_FN void look_and_copy(looked *l, __m512 x, float *copy)
{
    look_at(l, x);
    if (copy)
        _mm512_storeu_ps(copy, x);
}

/* Pairs of vectors, each with its own sums; the last one of a row may be of fewer lanes. */
CUT_FN attn__digits_scale look_at_block(const attn__digits_columns *from, const float *spread, float *copy)
{
    looked a = nothing_yet(), b = a;
    int64_t whole = from->n / (2 * SIDE) * (2 * SIDE), pitch = (from->n + SIDE - 1) / SIDE * SIDE;
    __mmask16 first = first_lanes(from->n - whole), second = first_lanes(from->n - whole - SIDE);
    const float *x = from->x;
    for (int64_t r = 0; r < from->k; r++, x += from->ld, copy += copy ? pitch : 0) {
        const float *ahead = from->x + (r + AHEAD < from->k ? r + AHEAD : r) * from->ld;
        __m512 factor = _mm512_set1_ps(spread ? spread[r] : 1);
        int64_t c = 0;
        for (; c < whole; c += 2 * SIDE) {
            __builtin_prefetch(ahead + c, 0, 3);
            __builtin_prefetch(ahead + c + SIDE, 0, 3);
            __m512 v = _mm512_loadu_ps(x + c), w = _mm512_loadu_ps(x + c + SIDE);
            look_and_copy(&a, spread ? _mm512_mul_ps(v, factor) : v, copy ? copy + c : NULL);
            look_and_copy(&b, spread ? _mm512_mul_ps(w, factor) : w, copy ? copy + c + SIDE : NULL);
        }
        if (c == from->n)
            continue;
        __builtin_prefetch(ahead + c, 0, 3);
        __builtin_prefetch(ahead + from->n - 1, 0, 3);
        __m512 v = _mm512_maskz_loadu_ps(first, x + c), w = _mm512_maskz_loadu_ps(second, x + c + SIDE);
        look_and_copy(&a, spread ? _mm512_mul_ps(v, factor) : v, copy ? copy + c : NULL);
        look_and_copy(&b, spread ? _mm512_mul_ps(w, factor) : w, copy && second ? copy + c + SIDE : NULL);
    }
    return scale_of_lanes(a, b);
}

attn__digits_scale attn__digits_scale_block(const attn__digits_columns *from)
{
    return from->spread ? look_at_block(from, from->spread, from->copy) : look_at_block(from, NULL, from->copy);
}

CUT_FN void turn_square(const int8_t *tile, int64_t rows, __mmask16 some, int64_t pitch, int8_t *out)
{
    vf row[VF_LANES];
    VF_UNROLL
    for (int r = 0; r < VF_LANES; r++)
        row[r] = vf_load((const float *)(const void *)(tile + r * ROW));
    vf_transpose(row);
    VF_UNROLL
    for (int r = 0; r < VF_LANES; r++)
        if (r < rows)
            _mm512_mask_storeu_ps(out + r * pitch, some, row[r]);
}

/* A tile for each digit as cut_rows leaves it, turned: a row of bytes for each column. */
CUT_FN void turn_across(const int8_t *tiles, int64_t columns, int64_t bytes, int64_t pitch, int64_t plane, int8_t *out)
{
    __mmask16 some = first_lanes(bytes / ROWS);
    for (int64_t d = 0; d < ATTN__DIGITS; d++, tiles += TILE, out += plane) {
        if (columns == SIDE)
            turn_square(tiles, SIDE, some, pitch, out);
        else
            turn_square(tiles, columns, some, pitch, out);
    }
}

void attn__digits_cut_across(const attn__digits_columns *from, float cut, int64_t pitch, int64_t plane, int8_t *out)
{
    __mmask16 some = first_lanes(from->n);
    __m512 factor = _mm512_set1_ps(cut);
    int8_t _Alignas(64) tiles[STEP];
    int64_t bytes = (from->k + DEPTH / 2 - 1) / (DEPTH / 2) * (DEPTH / 2);
    for (int64_t k = 0; k < from->k; k += DEPTH) {
        cut_tiles(from, k, some, factor, tiles);
        turn_across(tiles, from->n, bytes - k, pitch, plane, out + k);
    }
}

void attn__digits_cut_line(const float *x, float cut, int64_t n, int64_t plane, int8_t *out)
{
    __m512i order = order_of_numbers();
    __m512 factor = _mm512_set1_ps(cut);
    for (int64_t i = 0; i < n; i += DEPTH, out += DEPTH) {
        __m512 v[ROWS];
        VF_UNROLL
        for (int j = 0; j < ROWS; j++)
            v[j] = _mm512_maskz_loadu_ps(first_lanes(n - i - j * SIDE), x + i + j * SIDE);
        cut_numbers(v, factor, order, plane, out);
    }
}

/* The first n bytes: none below 1, all from 64 on. */
CUT_FN __mmask64 first_bytes(int64_t n)
{
    return n <= 0 ? 0 : n >= ROW ? ~(__mmask64)0 : ~(__mmask64)0 >> (ROW - n);
}

/* A row of at least a vector. */
CUT_FN void move_row(const int8_t *x, int64_t begin, int64_t end, int64_t width, int8_t *to)
{
    for (int64_t c = 0; c < width; c += ROW) {
        __mmask64 some = first_bytes(end - c) & ~first_bytes(begin - c);
        _mm512_mask_storeu_epi8(to + c, first_bytes(width - c), _mm512_maskz_loadu_epi8(some, x + c));
    }
}

/* Where rows are as far apart as they will be, as many at once as fit into a vector. */
void attn__digits_move(const attn__digits_rows *from, int64_t width, int8_t *to)
{
    int64_t at_once = from->ld == width && width < ROW ? ROW / width : 1;
    __mmask64 some = 0, row = first_bytes(from->end) & ~first_bytes(from->begin);
    for (int64_t i = 0; i < at_once; i++)
        some |= row << (i * width);
    for (int64_t r = 0; r < from->rows; r += at_once) {
        const int8_t *x = from->x + r * from->ld;
        int64_t bytes = (from->rows - r < at_once ? from->rows - r : at_once) * width;
        if (width > ROW)
            move_row(x, from->begin, from->end, width, to + r * width);
        else
            _mm512_mask_storeu_epi8(to + r * width, first_bytes(bytes),
                                    _mm512_maskz_loadu_epi8(some & first_bytes(bytes), x));
    }
}

/* What a run of adjacent numbers of a result is: tap after tap, and channel after channel where these adjoin. */
typedef struct place {
    float *to;
    int64_t tap, channel;
} place;

CUT_FN void put_number(const attn__digits_taps *from, int64_t apart, __m512 x, place *at)
{
    _mm512_storeu_ps(at->to, from->spread ? _mm512_mul_ps(x, _mm512_set1_ps(from->spread[at->channel])) : x);
    at->to += apart;
    if (++at->tap < from->taps)
        return;
    at->tap = 0;
    at->channel++;
    at->to += SIDE - from->taps * apart;
}

/* n adjacent numbers of the first results. */
CUT_FN void gather_square(const attn__digits_taps *from, const float *w, int64_t results, int64_t n, int64_t apart,
                          const float *next, place *at)
{
    vf row[VF_LANES];
    __mmask16 some = first_lanes(n);
    VF_UNROLL
    for (int r = 0; r < VF_LANES; r++) {
        row[r] = vf_zero();
        if (r < results) {
            __builtin_prefetch(next + r * from->result_stride, 0, 3);
            row[r] = _mm512_maskz_loadu_ps(some, w + r * from->result_stride);
        }
    }
    vf_transpose(row);
    VF_UNROLL
    for (int r = 0; r < VF_LANES; r++)
        if (r < n)
            put_number(from, apart, row[r], at);
}

void attn__digits_gather(const attn__digits_taps *from, float *to)
{
    enum { NEXT = 3 * SIDE, NEXT_CHANNEL = 16 };
    bool adjoin = from->channel_stride == from->taps;
    int64_t runs = adjoin ? 1 : from->channels, length = adjoin ? from->channels * from->taps : from->taps;
    int64_t apart = (from->flipped ? -1 : 1) * from->padded * SIDE;
    place at = {.to = to + (from->flipped ? (from->taps - 1) * from->padded * SIDE : 0)};
    for (int64_t i = 0; i < runs; i++) {
        const float *w = from->w + i * from->channel_stride;
        for (int64_t n = length; n > 0; n -= SIDE, w += SIDE) {
            const float *next = adjoin ? (n > NEXT ? w + NEXT : w)
                                       : (i + NEXT_CHANNEL < runs ? w + NEXT_CHANNEL * from->channel_stride : w);
            if (n >= SIDE && from->results == SIDE)
                gather_square(from, w, SIDE, SIDE, apart, next, &at);
            else
                gather_square(from, w, from->results, n < SIDE ? n : SIDE, apart, next, &at);
        }
    }
    for (int64_t tap = 0; tap < from->taps && from->padded > from->channels; tap++)
        memset(to + (tap * from->padded + from->channels) * SIDE, 0,
               (size_t)((from->padded - from->channels) * SIDE) * sizeof *to);
}

void attn__digits_cut_sixteen(const float *rows, int64_t k, attn__digits_scale *scale, int8_t *tiles)
{
    looked l = nothing_yet(), m = l;
    for (int64_t r = 0; r + 1 < k; r += 2) {
        look_at(&l, _mm512_loadu_ps(rows + r * SIDE));
        look_at(&m, _mm512_loadu_ps(rows + r * SIDE + SIDE));
    }
    if (k % 2)
        look_at(&l, _mm512_loadu_ps(rows + (k - 1) * SIDE));
    scales_of_lanes(both(l, m), SIDE, scale);
    attn__digits_cut_columns(&(attn__digits_columns){.x = rows, .ld = SIDE, .k = k, .n = SIDE}, scale, tiles);
}

/* All is read before anything is written: short rows overlap, and a read waits for a write beside its numbers. */
void attn__digits_put_turned(const float *const from[ATTN__DIGITS_SIDE], int64_t rows, int64_t columns, float *to,
                             int64_t ld, bool add)
{
    vf row[VF_LANES];
    __mmask16 some = first_lanes(columns);
    VF_UNROLL
    for (int r = 0; r < VF_LANES; r++)
        row[r] = r < columns ? vf_load(from[r]) : vf_zero();
    vf_transpose(row);
    VF_UNROLL
    for (int r = 0; r < VF_LANES; r++)
        if (add)
            row[r] = vf_add(row[r], _mm512_maskz_loadu_ps(r < rows ? some : (vm)0, to + r * ld));
    VF_UNROLL
    for (int r = 0; r < VF_LANES; r++)
        _mm512_mask_storeu_ps(to + r * ld, r < rows ? some : (vm)0, row[r]);
}

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
