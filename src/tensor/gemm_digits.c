/* SPDX-License-Identifier: MIT
 * Products of f32 matrices in the matrix unit.  B is packed first, as much of it as fits the third cache; then each
 * item (gemm_digits_item.c) takes some rows of A.  Sums that are not finite are done again without the unit: what is
 * infinite has no digits, and an overflow may have either sign. */
#include "tensor/gemm_digits.h"

#include "base/parallel.h"
#include "tensor/gemm_digits_work.h"

#include <string.h>

enum { ROWS = 256, LINE = 64 }; /* of an item, at most: packed 0.6 MB, twice */
/* Numbers of B packed at once, 18 MiB, and its columns. */
enum { PACKED = 6 << 20, WIDEST = 3072 };
/* Columns that are done again at once, at most. */
enum { AGAIN = 1024 / SIDE };

/* Columns [at, at + n) and rows [row, row + m) of a product. */
static attn__gemm_args part_of(const attn__gemm_args *g, int64_t row, int64_t m, int64_t at, int64_t n)
{
    attn__gemm_args part = attn__gemm_rows_from(g, row);
    part.m = attn__least(part.m, m);
    part.n = attn__least(g->n - at, n);
    part.b = (const float *)g->b + (g->transpose_b ? at * g->ldb : at);
    part.c = (float *)part.c + at;
    part.bias = g->bias ? (const float *)g->bias + at : NULL;
    return part;
}

/* The first of these flags from `at` on that is set, or `count`. */
static int64_t next_odd(const bool *odd, int64_t at, int64_t count)
{
    const bool *found = at < count ? memchr(odd + at, true, (size_t)(count - at)) : NULL;
    return found ? found - odd : count;
}

/* What was done again of one panel, to the rows that need it. */
static void store_again(const attn__digits_product *p, const attn__gemm_args *part, int64_t at, int64_t column)
{
    int64_t n = attn__least(part->n - column, SIDE);
    for (int64_t i = 0; i < part->m; i++)
        if (p->odd_rows[at] >> i & 1)
            p->kernel->put((const float *)part->c + i * part->ldc + column,
                           (float *)p->g->c + (at / p->panels * SIDE + i) * p->g->ldc + at % p->panels * SIDE, n,
                           p->g->add);
}

/* What has sums that are not finite, as the other products have them: 16 rows by panels beside each other, of which
 * only the rows that have them are taken. */
static bool odd_panels(attn_tape *tape, const attn__digits_product *p)
{
    bool done = true;
    int64_t count = attn__pieces(p->g->m, SIDE) * p->panels;
    for (int64_t at = next_odd(p->odd, 0, count), end; at < count && done; at = next_odd(p->odd, end, count)) {
        int64_t row = at / p->panels, column = at % p->panels;
        int64_t last = attn__least(at + AGAIN, (row + 1) * p->panels);
        for (end = at + 1; end < last && p->odd[end];)
            end++;
        attn__gemm_args part = part_of(p->g, row * SIDE, SIDE, column * SIDE, (end - at) * SIDE);
        part.c = p->again;
        part.ldc = part.n;
        part.add = false;
        done = attn__gemm_in_vectors(tape, &part);
        for (int64_t i = at; i < end && done; i++)
            store_again(p, &part, i, (i - at) * SIDE);
    }
    return done;
}

/* --------------------------------------------------------------------------------------------------- groups */

/* As many items for each thread, of as many rows but for one square; bits do not depend on it. */
static void divide(attn__digits_product *p, int threads, int64_t m)
{
    int64_t squares = attn__pieces(m, SIDE);
    p->items = attn__least(threads * attn__pieces(attn__pieces(squares, threads), ROWS / SIDE), squares);
    p->height = attn__pieces(squares, p->items) * SIDE;
}

typedef struct sizes {
    int64_t widest, longest;                                      /* columns and chunks in which B is packed */
    size_t b, a, copies, sums, bias, again, odd_rows, odd, odd_b; /* bytes */
} sizes;

static size_t lines(int64_t bytes)
{
    return (size_t)attn__round_up(bytes, LINE);
}

static int64_t floats(int64_t count)
{
    return count * (int64_t)sizeof(float);
}

/* What is packed, and which sums are kept. */
static sizes sizes_of(int threads, const attn__gemm_args *g, attn__digits_product *p, bool packed)
{
    const attn__digits_chunks *chunks = &p->chunks;
    bool whole = packed && chunks->count <= STRETCH; /* else the sums of all columns wait for the last of k */
    sizes s = {.widest = whole ? g->n : attn__least(g->n, WIDEST), .longest = chunks->count};
    if (!packed && s.widest * g->k > PACKED)
        s.longest = attn__least(chunks->count, attn__most(PACKED / s.widest / chunks->each / STRETCH, 1) * STRETCH);
    int64_t panels = attn__pieces(s.widest, SIDE);
    p->of_items = s.longest < chunks->count;
    p->once = chunks->count <= STRETCH && !p->of_items;
    p->kept = p->once ? 2 : attn__pieces(panels, GROUP);
    s.b = packed ? 0 : lines((int64_t)attn__gemm_digits_lay_out_b(p, s.widest, s.longest, NULL));
    s.a = lines(attn__gemm_digits_bytes(p->height, attn__least(g->k, STRETCH * chunks->each)) +
                floats(STRETCH * p->height) + STRETCH * p->height);
    s.copies = g->transpose_a || (!g->transpose_b && !packed)
                   ? lines(floats(ATTN__DIGITS_CHUNK * ATTN__DIGITS_COPIED)) * (size_t)threads
                   : 0;
    s.sums = lines((p->of_items ? p->items : threads) * floats(p->kept * p->height * WIDTH));
    s.bias = g->bias ? lines(floats(panels * SIDE)) : 0;
    s.again = lines(floats(SIDE * SIDE * attn__least(panels, AGAIN)));
    s.odd = lines(attn__pieces(g->m, SIDE) * panels);
    s.odd_rows = s.odd * sizeof(uint16_t);
    s.odd_b = lines(attn__gemm_digits_pieces_of_b(s.widest));
    return s;
}

static size_t sum_of(int threads, const sizes *s)
{
    return s->b + 2 * (size_t)threads * s->a + s->copies + s->sums + s->bias + s->again + s->odd_rows + s->odd +
           s->odd_b;
}

/* The memory of a product, in the order of `sizes`. */
static void lay_out(attn__digits_product *p, int threads, const sizes *s, char *data)
{
    data += s->b;
    p->a = (int8_t *)data;
    p->a_step = s->a;
    data += 2 * (size_t)threads * s->a;
    p->copies = (float *)(void *)data;
    data += s->copies;
    p->sums = (float *)(void *)data;
    data += s->sums;
    p->padded = (float *)(void *)data;
    p->again = (float *)(void *)(data + s->bias);
    p->odd_rows = (uint16_t *)(void *)((char *)p->again + s->again);
    p->odd = (bool *)p->odd_rows + s->odd_rows;
    p->odd_b = p->odd + s->odd;
}

/* The bias of this group, with zeros to the end of its last panel. */
static void pad_bias(attn__digits_product *p)
{
    int64_t n = p->g->n;
    if (!p->g->bias)
        return;
    memcpy(p->padded, p->g->bias, (size_t)n * sizeof(float));
    memset(p->padded + n, 0, (size_t)(attn__round_up(n, SIDE) - n) * sizeof(float));
}

/* All rows of one group of columns.  False without memory. */
static bool product_group(attn_tape *tape, attn__digits_product *p, int64_t longest, bool packed)
{
    int threads = tape->context->threads;
    p->panels = attn__pieces(p->g->n, SIDE);
    pad_bias(p);
    memset(p->odd_rows, 0, (size_t)(attn__pieces(p->g->m, SIDE) * p->panels) * sizeof *p->odd_rows);
    for (p->begin = 0; p->begin < p->chunks.count; p->begin = p->end) {
        p->end = attn__least(p->begin + longest, p->chunks.count);
        if (!packed && !attn__gemm_digits_pack_b(threads, p))
            return attn__gemm_in_vectors(tape, p->g);
        attn__share_out(&p->shares, threads, p->items);
        attn__parallel_items(threads, threads, attn__gemm_digits_work, p);
    }
    return odd_panels(tape, p);
}

/* Beside the m n k of the product, B is packed at a cost of n k, A of m k, and C is stored at one of m n.  Measured,
 * one thread, against multiply-adds: 128 x 128 x 128 gains a tenth, 1280 x 256 x 64 a thirtieth, 1280 x 64 x 256 a
 * quarter, 64 x 512 x 512 three quarters; 96 x 96 x 96 loses a quarter. */
static bool pays(int64_t m, int64_t n, int64_t k)
{
    const double most_cost = 1.0 / 48;
    return 1.0 / (double)m + 1.0 / (double)n + 1.0 / (double)k <= most_cost;
}

bool attn__gemm_digits_takes(const attn_context *context, int64_t m, int64_t n, int64_t k)
{
    return attn__digits_for(context->isa) && m > 0 && n > 0 && k > 0 && pays(m, n, k);
}

/* B as it is packed, or how it will be. */
static void prepare_b(attn_tape *tape, const attn__gemm_args *g, attn__digits_product *p, const sizes *s,
                      const attn__packed *packed, char *data)
{
    attn__gemm_digits_lay_out_b(p, packed ? g->n : s->widest, s->longest, packed ? packed->hold.data : data);
    if (packed)
        p->b.spread = packed->spread;
    else
        attn__gemm_digits_spread(tape->context->threads, g, p);
}

/* The next columns of what is packed. */
static void pass_columns(attn__digits_b *b, int64_t n)
{
    b->tiles += n / SIDE * b->panel;
    b->units += n;
    b->fine += n / SIDE;
}

attn_status attn__gemm_digits(attn_tape *tape, const attn__gemm_args *g, const attn__packed *packed)
{
    int threads = tape->context->threads;
    attn__digits_product p = {.kernel = attn__digits_for(tape->context->isa),
                              .rows = attn__rows_for(false, tape->context->isa)};
    packed = packed && packed->hold.data ? packed : NULL;
    if (!p.kernel || g->dtype != ATTN_F32 || g->m == 0 || g->n == 0 || g->k == 0 ||
        (!packed && !pays(g->m, g->n, g->k)))
        return ATTN_UNSUPPORTED;
    divide(&p, threads, g->m);
    p.chunks = attn__gemm_digits_chunks(g->k);
    sizes s = sizes_of(threads, g, &p, packed != NULL);
    attn__hold scratch = attn__scratch(tape, sum_of(threads, &s));
    if (!scratch.data)
        return ATTN_MEMORY;
    lay_out(&p, threads, &s, scratch.data);
    prepare_b(tape, g, &p, &s, packed, scratch.data);
    bool done = true;
    for (int64_t at = 0; at < g->n && done; at += s.widest) {
        attn__gemm_args group = part_of(g, 0, g->m, at, s.widest);
        p.g = &group;
        done = product_group(tape, &p, s.longest, packed != NULL);
        if (packed && at + s.widest < g->n)
            pass_columns(&p.b, s.widest);
    }
    attn__scratch_release(scratch);
    return done ? ATTN_OK : ATTN_MEMORY;
}
