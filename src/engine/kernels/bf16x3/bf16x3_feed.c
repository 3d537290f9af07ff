/* SPDX-License-Identifier: MIT
 *
 * bf16x3_feed.c - makes tiles from rows, prefetches cache lines and stores sums. This work is interleaved with
 * products; see bf16x3_feed.h.
 */
#include "kernels/bf16x3/bf16x3_feed.h"

#include "base/integers.h"

#if defined(__x86_64__)
#include "simd/vec_avx512.h"

#include "kernels/bf16x3/bf16x3_round.h"

enum {
    SIDE = ATTN__BF16X3_SIDE,
    DEPTH = ATTN__BF16X3_DEPTH,
    ROWS = 4,       /* rows of a tile that are split per portion */
    AHEAD = 16,     /* prefetch distance in tiles; lines arrive in time and stay until use */
    SOON = 16,      /* prefetch distance of stores in rows */
    WHOLE = 1 << 16 /* one unit of work, in the fixed-point numbers `due` and `rate` */
};

/* ------------------------------------------------------------------------------------------------- splitting */

/* Loads 16 columns of a row. If the row does not exist, returns zeros. */
VF_FN vf load(const attn__feed_side *s, const float *columns, int64_t row)
{
    return row < s->rows ? vf_load(columns + s->row_at[row]) : vf_zero();
}

/* Multiplies 32 numbers of a row of s by 32 numbers of s->with, and adds the products to the row's 16 partial sums in
 * s->dots. */
VF_FN void add_dot(const attn__feed_side *s, int64_t step, int64_t row, vf low, vf high)
{
    if (row >= s->rows)
        return;
    const float *with = s->with[step] + s->with_at[row];
    float *dot = s->dots + row * SIDE;
    vf_store(dot, vf_fma(low, vf_load(with), vf_fma(high, vf_load(with + SIDE), vf_load(dot))));
}

VF_FN int64_t split_rows(attn__bf16x3_feed *f, const attn__feed_side *s, vf *odd)
{
    int64_t step = f->split.column, first = f->split.part * ROWS, row = f->split.row + first;
    const float *columns = s->at[step];
    uint16_t *out = f->split.out + first * DEPTH;
    VF_UNROLL
    for (int i = 0; i < ROWS; i++) {
        vf low = load(s, columns, row + i), high = load(s, columns + SIDE, row + i);
        cut_rounded(low, high, out + i * DEPTH, ATTN__BF16X3_TILE, odd, odd);
        if (s->dots)
            add_dot(s, step, row + i, low, high);
    }
    return SIDE / ROWS;
}

/* Transposes a square of 16 rows and 16 columns, multiplies it by the factor, and writes it to f->stage. */
VF_FN void transpose(attn__bf16x3_feed *f, const attn__feed_side *s)
{
    const float *columns = s->at[f->split.column] + f->split.part * SIDE;
    vf square[SIDE], factor = vf_set1(s->factor);
    VF_UNROLL
    for (int i = 0; i < SIDE; i++)
        square[i] = vf_mul(load(s, columns, f->split.row + i), factor);
    vf_transpose(square);
    VF_UNROLL
    for (int i = 0; i < SIDE; i++)
        vf_store(f->stage[f->split.part * SIDE + i], square[i]);
}

VF_FN int64_t split_transposed(attn__bf16x3_feed *f, const attn__feed_side *s, vf *odd)
{
    enum { SQUARES = DEPTH / SIDE };
    if (f->split.part < SQUARES) {
        transpose(f, s);
    } else {
        int64_t row = (f->split.part - SQUARES) * ROWS;
        uint16_t *out = f->split.out + row * DEPTH;
        VF_UNROLL
        for (int i = 0; i < ROWS; i++)
            cut_rounded(vf_load(f->stage[row + i]), vf_load(f->stage[SIDE + row + i]), out + i * DEPTH,
                        ATTN__BF16X3_TILE, odd, odd);
    }
    return SQUARES + SIDE / ROWS;
}

VF_FN int64_t split_pairs(attn__bf16x3_feed *f, const attn__feed_side *s, vf *odd)
{
    int64_t block = f->split.column, first = f->split.part * ROWS, row = f->split.row + 2 * first;
    const float *columns = s->at[block / 2] + block % 2 * SIDE;
    uint16_t *out = f->split.out + block * s->to.block + first * DEPTH;
    VF_UNROLL
    for (int i = 0; i < ROWS; i++)
        cut_rounded(load(s, columns, row + 2 * i), load(s, columns, row + 2 * i + 1), out + i * DEPTH,
                    ATTN__BF16X3_TILE, odd, odd);
    return SIDE / ROWS;
}

VF_FN int64_t height_of(const attn__feed_side *s)
{
    return s->kind == ATTN__FEED_PAIRS ? DEPTH : SIDE;
}

VF_FN int64_t width_of(const attn__feed_side *s)
{
    return s->kind == ATTN__FEED_PAIRS ? s->steps * (DEPTH / SIDE) : s->steps;
}

static int64_t portions_of(const attn__feed_side *s)
{
    int64_t each = SIDE / ROWS + (s->kind == ATTN__FEED_TRANSPOSED ? DEPTH / SIDE : 0);
    return attn__ceil_div(s->rows, height_of(s)) * width_of(s) * each;
}

VF_FN void split_next_side(attn__bf16x3_feed *f, int side)
{
    f->split.side = side;
    f->split.row = f->split.column = f->split.part = 0;
    f->split.out = f->side[side < f->sides ? side : 0].to.data;
}

/* Splits one portion of rows into bf16 parts and advances to the next portion. Tiles of ROWS and TRANSPOSED are
 * contiguous, but tiles of PAIRS are contiguous only within a block. */
VF_FN void split_some(attn__bf16x3_feed *f)
{
    const attn__feed_side *s = &f->side[f->split.side];
    vf odd = vf_load(f->odd);
    int64_t parts = s->kind == ATTN__FEED_ROWS         ? split_rows(f, s, &odd)
                    : s->kind == ATTN__FEED_TRANSPOSED ? split_transposed(f, s, &odd)
                                                       : split_pairs(f, s, &odd);
    vf_store(f->odd, odd);
    if (++f->split.part < parts)
        return;
    f->split.part = 0;
    bool row_ends = ++f->split.column == width_of(s);
    if (row_ends || s->kind != ATTN__FEED_PAIRS)
        f->split.out += s->to.step;
    if (!row_ends)
        return;
    f->split.column = 0;
    f->split.row += height_of(s);
    if (f->split.row >= s->rows)
        split_next_side(f, f->split.side + 1);
}

/* -------------------------------------------------------------------------------------------------- fetching */

/* Returns the number of squares of 16 rows and 32 columns. Prefetching counts squares, whatever shape the tiles
 * have. */
static int64_t squares_of(const attn__feed_side *s)
{
    return attn__ceil_div(s->rows, SIDE) * s->steps;
}

VF_FN void prefetch_row(attn__bf16x3_feed *f)
{
    if (f->prefetch.side >= f->sides + f->nexts)
        return;
    const attn__feed_side *s =
        f->prefetch.side < f->sides ? &f->side[f->prefetch.side] : &f->next[f->prefetch.side - f->sides];
    int64_t step = f->prefetch.step, row = f->prefetch.row + f->prefetch.line;
    if (row < s->rows) {
        __builtin_prefetch(s->at[step] + s->row_at[row], 0, 2);
        __builtin_prefetch(s->at[step] + s->row_at[row] + SIDE, 0, 2);
        if (s->dots) {
            __builtin_prefetch(s->with[step] + s->with_at[row], 0, 2);
            __builtin_prefetch(s->with[step] + s->with_at[row] + SIDE, 0, 2);
        }
    }
    if (++f->prefetch.line < SIDE)
        return;
    f->prefetch.line = 0;
    if (++f->prefetch.step < s->steps)
        return;
    f->prefetch.step = 0;
    f->prefetch.row += SIDE;
    if (f->prefetch.row < s->rows)
        return;
    f->prefetch.row = 0;
    f->prefetch.side++;
}

/* Skips the first AHEAD squares, because they were prefetched earlier, when the current sides were the next sides. */
static void skip_first(attn__bf16x3_feed *f)
{
    int64_t left = AHEAD;
    f->prefetch.side = 0;
    f->prefetch.row = f->prefetch.step = f->prefetch.line = 0;
    while (f->prefetch.side < f->sides && left >= squares_of(&f->side[f->prefetch.side]))
        left -= squares_of(&f->side[f->prefetch.side++]);
    if (f->prefetch.side == f->sides)
        return;
    f->prefetch.row = left / f->side[f->prefetch.side].steps * SIDE;
    f->prefetch.step = left % f->side[f->prefetch.side].steps;
}

/* -------------------------------------------------------------------------------------------------- draining */

VF_FN void add_row(const attn__feed_pending *d, const float *out, int64_t row, vf *low, vf *high)
{
    vf was = vf_set1(d->was[row]);
    *low = vf_fma(vf_load(out), was, *low);
    *high = vf_fma(vf_load(out + SIDE), was, *high);
}

/* Prefetches the lines of a later store, because a store that misses the cache stalls the stores after it. */
VF_FN void prefetch_drain(const attn__feed_pending *d, int64_t step, int64_t row)
{
    const float *columns = row < d->rows ? d->at[step] : d->next[step];
    row -= row < d->rows ? 0 : d->rows;
    if (!columns || row >= d->rows)
        return;
    const float *soon = columns + d->row_at[row];
    __builtin_prefetch(soon, 0, 2);
    __builtin_prefetch(soon + SIDE, 0, 2);
}

VF_FN void drain_row(attn__bf16x3_feed *f)
{
    const attn__feed_pending *d = &f->drain;
    int64_t row = f->drained++;
    for (int64_t step = 0; step < d->steps; step++) {
        const float *sums = d->from + row * d->ld + step * DEPTH;
        float *out = d->at[step] + d->row_at[row];
        vf factor = vf_set1(d->factor[row]), low = vf_mul(vf_load(sums), factor);
        vf high = vf_mul(vf_load(sums + SIDE), factor);
        if (d->was && d->was[row] >= 0.0f)
            add_row(d, out, row, &low, &high);
        prefetch_drain(d, step, row + SOON);
        vf_store(out, low);
        vf_store(out + SIDE, high);
    }
}

/* ---------------------------------------------------------------------------------------------- all of it */

static void portion(attn__interleaved *interleaved)
{
    attn__bf16x3_feed *f = (attn__bf16x3_feed *)(void *)interleaved;
    for (f->prefetches.due += f->prefetches.rate; f->prefetches.due >= WHOLE; f->prefetches.due -= WHOLE)
        prefetch_row(f);
    for (f->splits.due += f->splits.rate; f->splits.due >= WHOLE; f->splits.due -= WHOLE)
        if (f->split.side < f->sides)
            split_some(f);
    for (f->drains.due += f->drains.rate; f->drains.due >= WHOLE; f->drains.due -= WHOLE)
        if (f->drained < f->drain.rows)
            drain_row(f);
}

void attn__bf16x3_feed_begin(attn__bf16x3_feed *f, int64_t portions)
{
    int64_t splits = 0, prefetches = 0, each = attn__max(portions, 1);
    f->interleaved.portion = portion;
    split_next_side(f, 0);
    f->drained = 0;
    for (int i = 0; i < f->sides; i++) {
        splits += portions_of(&f->side[i]);
        prefetches += squares_of(&f->side[i]) * SIDE;
    }
    skip_first(f);
    f->splits.rate = (splits * WHOLE + each - 1) / each;
    f->prefetches.rate = (prefetches * WHOLE + each - 1) / each;
    f->drains.rate = (f->drain.rows * WHOLE + each - 1) / each;
    f->splits.due = f->prefetches.due = f->drains.due = 0;
    vf_store(f->odd, vf_zero());
}

bool attn__bf16x3_feed_end(attn__bf16x3_feed *f)
{
    while (f->split.side < f->sides)
        split_some(f);
    while (f->drained < f->drain.rows)
        drain_row(f);
    vf odd = vf_load(f->odd);
    return _mm512_cmp_ps_mask(odd, odd, _CMP_UNORD_Q) == 0;
}

#include "simd/isa_end.h"
#else
void attn__bf16x3_feed_begin(attn__bf16x3_feed *feed, int64_t portions)
{
    (void)feed;
    (void)portions;
}

bool attn__bf16x3_feed_end(attn__bf16x3_feed *feed)
{
    (void)feed;
    return false;
}
#endif
