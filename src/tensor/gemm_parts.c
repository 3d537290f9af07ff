/* SPDX-License-Identifier: MIT
 * Products of f32 matrices in the matrix unit.  B is packed first, as much of it as fits the third cache; then each
 * item (gemm_parts_item.c) takes some rows of A.  Sums that are not finite are done again without the unit: parts of
 * what is infinite are no numbers, and an overflow may have either sign. */
#include "tensor/gemm_parts.h"

#include "base/parallel.h"
#include "tensor/gemm_parts_work.h"

#include <string.h>

enum { ROWS = 192, LINE = 64 }; /* of an item, at most: packed 0.9 MB */
/* Numbers of B packed at once, 18 MiB, and its columns. */
enum { PACKED = 3 << 20, WIDEST = 3072 };
/* Columns that are done again at once, at most. */
enum { AGAIN = 1024 / PANEL };

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

/* What has sums that are not finite, as the other products have them: 16 rows by panels beside each other. */
static bool odd_panels(attn_tape *tape, const attn__parts_product *p)
{
    bool done = true;
    int64_t count = attn__pieces(p->g->m, SIDE) * p->panels;
    for (int64_t at = next_odd(p->odd, 0, count), end; at < count && done; at = next_odd(p->odd, end, count)) {
        int64_t row = at / p->panels, column = at % p->panels;
        int64_t last = attn__least(at + AGAIN, (row + 1) * p->panels);
        for (end = at + 1; end < last && p->odd[end];)
            end++;
        attn__gemm_args part = part_of(p->g, row * SIDE, SIDE, column * PANEL, (end - at) * PANEL);
        done = attn__gemm_in_vectors(tape, &part);
    }
    return done;
}

/* --------------------------------------------------------------------------------------------------- groups */

/* Rows of an item, so that the thread with most of them is done first; bits do not depend on it.  To read B once costs
 * an item as much as some 20 rows. */
static int64_t height_of(int threads, int64_t m)
{
    enum { READING = 20 };
    int64_t best = ROWS, least = INT64_MAX;
    for (int64_t height = ROWS; height >= PANEL; height -= PANEL) {
        int64_t most = attn__pieces(attn__pieces(m, height), threads);
        int64_t cost = attn__least(most * height, m) + most * READING;
        if (cost < least) {
            least = cost;
            best = height;
        }
    }
    return best;
}

/* Which sums are kept. */
static void plan_sums(attn__parts_product *p, int64_t n, int64_t k, int64_t longest)
{
    p->of_items = longest < k;
    p->once = k <= LONG && !p->of_items;
    p->squares = p->once ? 2 : p->height / PANEL * attn__pieces(n, PANEL);
}

typedef struct sizes {
    int64_t widest, longest;             /* parts of n and k in which B is packed */
    size_t b, a, sums, bias, odd, odd_b; /* bytes */
} sizes;

static size_t lines(int64_t bytes)
{
    return (size_t)attn__round_up(bytes, LINE);
}

static int64_t packed_numbers(int64_t rows, int64_t depth)
{
    return attn__pieces(rows, SIDE) * attn__pieces(depth, ATTN__PARTS_DEPTH) * CELL;
}

static sizes sizes_of(int threads, const attn__gemm_args *g, attn__parts_product *p, bool packed)
{
    sizes s = {.widest = packed ? g->n : attn__least(g->n, WIDEST), .longest = g->k};
    if (!packed && s.widest * g->k > PACKED)
        s.longest = attn__least(g->k, attn__most(PACKED / s.widest / LONG, 1) * LONG);
    plan_sums(p, s.widest, g->k, s.longest);
    s.b = packed ? 0 : lines(packed_numbers(s.widest, s.longest) * (int64_t)sizeof(uint16_t));
    s.a = lines(packed_numbers(p->height, attn__least(s.longest, LONG)) * (int64_t)sizeof(uint16_t));
    s.sums = lines((p->of_items ? p->items : threads) * p->squares * SQUARE * (int64_t)sizeof(float));
    s.bias = g->bias ? lines(attn__round_up(s.widest, PANEL) * (int64_t)sizeof(float)) : 0;
    s.odd = lines(attn__pieces(g->m, SIDE) * attn__pieces(s.widest, PANEL));
    s.odd_b = lines(attn__gemm_parts_pieces_of_b(s.widest));
    return s;
}

static size_t sum_of(int threads, const sizes *s)
{
    return s->b + 2 * (size_t)threads * s->a + s->sums + s->bias + s->odd + s->odd_b;
}

/* The memory of a product, in the order of `sizes`. */
static void lay_out(attn__parts_product *p, int threads, const sizes *s, char *data)
{
    p->a = (uint16_t *)(void *)(data + s->b);
    p->a_step = s->a / sizeof *p->a;
    data += s->b + 2 * (size_t)threads * s->a;
    p->sums = (float *)(void *)data;
    data += s->sums;
    p->padded = (float *)(void *)data;
    p->odd = (bool *)data + s->bias;
    p->odd_b = p->odd + s->odd;
}

/* The bias of this group, with zeros to the end of its last panel. */
static void pad_bias(attn__parts_product *p)
{
    int64_t n = p->g->n;
    if (!p->g->bias)
        return;
    memcpy(p->padded, p->g->bias, (size_t)n * sizeof(float));
    memset(p->padded + n, 0, (size_t)(attn__round_up(n, PANEL) - n) * sizeof(float));
}

/* All rows of one group of columns.  False without memory. */
static bool product_group(attn_tape *tape, attn__parts_product *p, int64_t longest, bool packed)
{
    int threads = tape->context->threads;
    p->panels = attn__pieces(p->g->n, PANEL);
    pad_bias(p);
    for (p->begin = 0; p->begin < p->g->k; p->begin = p->end) {
        p->end = attn__least(p->begin + longest, p->g->k);
        if (!packed) {
            p->b = attn__parts_packed(p->b.data, attn__pieces(p->end - p->begin, ATTN__PARTS_DEPTH), PARTS);
            if (!attn__gemm_parts_pack_b(threads, p))
                return attn__gemm_in_vectors(tape, p->g);
        }
        p->taken = 0;
        attn__parallel_items(threads, threads, attn__gemm_parts_work, p);
    }
    return odd_panels(tape, p);
}

/* Beside the m n k of the product, B is packed at a cost of n k, A of m k, and C is stored at one of m n.  Measured:
 * 128 x 256 x 256 gains a tenth with one thread and loses one with two, 1280 x 256 x 64 is as quick either way, and
 * 128 x 128 x 128 loses a quarter. */
static bool pays(const attn__gemm_args *g, bool packed)
{
    const double most_cost = 1.0 / 64;
    return packed || 1.0 / (double)g->m + 1.0 / (double)g->n + 1.0 / (double)g->k <= most_cost;
}

attn_status attn__gemm_parts(attn_tape *tape, const attn__gemm_args *g, const attn__packed *packed)
{
    int threads = tape->context->threads;
    attn__parts_product p = {.kernel = attn__parts_for(tape->context->isa),
                             .rows = attn__rows_for(false, tape->context->isa)};
    packed = packed && packed->hold.data ? packed : NULL;
    if (!p.kernel || g->dtype != ATTN_F32 || g->m == 0 || g->n == 0 || g->k == 0 || !pays(g, packed != NULL))
        return ATTN_UNSUPPORTED;
    p.height = height_of(threads, g->m);
    p.items = attn__pieces(g->m, p.height);
    sizes s = sizes_of(threads, g, &p, packed != NULL);
    attn__hold scratch = attn__scratch(tape, sum_of(threads, &s));
    if (!scratch.data)
        return ATTN_MEMORY;
    p.b = attn__parts_packed(packed ? packed->hold.data : scratch.data, attn__pieces(g->k, ATTN__PARTS_DEPTH), PARTS);
    lay_out(&p, threads, &s, scratch.data);
    bool done = true;
    for (int64_t at = 0; at < g->n && done; at += s.widest) {
        attn__gemm_args group = part_of(g, 0, g->m, at, s.widest);
        p.g = &group;
        done = product_group(tape, &p, s.longest, packed != NULL);
    }
    attn__scratch_release(scratch);
    return done ? ATTN_OK : ATTN_MEMORY;
}
