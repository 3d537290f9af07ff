/* SPDX-License-Identifier: MIT
 * Products of f32 matrices on AMX.  B is packed first, as much of it as fits the third cache; then each
 * item (gemm_slices_item.c) takes some rows of A.  Rows for which a panel of B has no proof, and sums that are not
 * finite, are done again by multiply-adds. */
#include "tensor/gemm_slices.h"

#include "base/parallel.h"
#include "tensor/gemm_slices_work.h"

#include <string.h>

enum { ROWS = 256, LINE = 64 }; /* of an item, at most: packed 0.6 MB, twice */
/* Numbers of B packed at once, 18 MiB, and its columns. */
enum { PACKED = 6 << 20, WIDEST = 3072 };
/* Panels and rows that go to multiply-adds at once, at most. */
enum { AGAIN = 1024 / SIDE, AGAIN_ROWS = 128 };

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

/* Rows that slices do not prove in some panels: their numbers, and what multiply-adds make of them. */
typedef struct again {
    attn_tape *tape;
    const attn__slices_product *p;
    int64_t panel, panels; /* all with the same rows */
    int64_t count, row[AGAIN_ROWS];
} again;

static bool goes_again(const attn__slices_product *p, int64_t row, int64_t panel)
{
    return p->again[row / SIDE * p->panels + panel] >> row % SIDE & 1;
}

/* A row of op(A) beside those that came before. */
static void gather_row(const attn__slices_product *p, int64_t row, float *to)
{
    const attn__gemm_args *g = p->g;
    const float *from = (const float *)g->a + row * (g->transpose_a ? 1 : g->lda);
    if (!g->transpose_a)
        memcpy(to, from, (size_t)g->k * sizeof *to);
    else
        for (int64_t k = 0; k < g->k; k++)
            to[k] = from[k * g->lda];
}

static bool multiply_again(again *t)
{
    const attn__slices_product *p = t->p;
    attn__gemm_args part = part_of(p->g, 0, p->g->m, t->panel * SIDE, t->panels * SIDE);
    float *to = part.c;
    part.m = t->count;
    part.transpose_a = false;
    part.a = p->gathered;
    part.lda = part.k;
    part.c = p->redone;
    part.ldc = part.n;
    part.add = false;
    for (int64_t i = 0; i < t->count; i++)
        gather_row(p, t->row[i], p->gathered + i * part.k);
    bool done = attn__gemm_in_vectors(t->tape, &part);
    for (int64_t i = 0; i < t->count && done; i++)
        p->kernel->store(p->redone + i * part.n, to + t->row[i] * p->g->ldc, part.n, p->g->add);
    t->count = 0;
    return done;
}

static bool rows_again(again *t)
{
    bool done = true;
    for (int64_t row = 0; row < t->p->g->m && done; row++) {
        if (goes_again(t->p, row, t->panel))
            t->row[t->count++] = row;
        if (t->count == AGAIN_ROWS)
            done = multiply_again(t);
    }
    return done && (t->count == 0 || multiply_again(t));
}

static bool same_rows(const attn__slices_product *p, int64_t panel, int64_t other)
{
    bool same = true;
    for (int64_t i = 0; i < attn__pieces(p->g->m, SIDE) && same; i++)
        same = p->again[i * p->panels + panel] == p->again[i * p->panels + other];
    return same;
}

/* What slices do not prove, by multiply-adds: panels together that need it for the same rows. */
static bool all_again(attn_tape *tape, const attn__slices_product *p)
{
    bool done = true;
    for (int64_t at = 0, n; at < p->panels && done; at += n) {
        for (n = 1; n < AGAIN && at + n < p->panels && same_rows(p, at, at + n);)
            n++;
        done = rows_again(&(again){.tape = tape, .p = p, .panel = at, .panels = n});
    }
    return done;
}

/* --------------------------------------------------------------------------------------------------- groups */

/* As many items for each thread, of as many rows but for one square; bits do not depend on it. */
static void divide(attn__slices_product *p, int threads, int64_t m)
{
    int64_t squares = attn__pieces(m, SIDE);
    p->items = attn__least(threads * attn__pieces(attn__pieces(squares, threads), ROWS / SIDE), squares);
    p->height = attn__pieces(squares, p->items) * SIDE;
}

typedef struct sizes {
    int64_t widest, longest;                                  /* columns and chunks in which B is packed */
    size_t b, a, copies, sums, bias, redone, gathered, again; /* bytes */
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
static sizes sizes_of(int threads, const attn__gemm_args *g, attn__slices_product *p, bool packed)
{
    const attn__slices_blocks *blocks = &p->blocks;
    bool whole = packed && blocks->count <= STRETCH; /* else the sums of all columns wait for the last of k */
    sizes s = {.widest = whole ? g->n : attn__least(g->n, WIDEST), .longest = blocks->count};
    if (!packed && s.widest * g->k > PACKED)
        s.longest =
            attn__least(blocks->count, attn__most(PACKED / s.widest / ATTN__SLICES_K_BLOCK / STRETCH, 1) * STRETCH);
    int64_t panels = attn__pieces(s.widest, SIDE);
    p->of_items = s.longest < blocks->count;
    p->once = blocks->count <= STRETCH && !p->of_items;
    p->kept = p->once ? 2 : attn__pieces(panels, GROUP);
    s.b = packed ? 0 : lines((int64_t)attn__gemm_slices_lay_out_b(p, s.widest, s.longest, NULL));
    s.a = lines(attn__gemm_slices_bytes(p->height, attn__least(g->k, STRETCH * ATTN__SLICES_K_BLOCK)) +
                STRETCH * (p->height / SIDE) * (int64_t)sizeof(attn__slices_rows));
    s.copies = g->transpose_a || (!g->transpose_b && !packed)
                   ? lines(floats(ATTN__SLICES_K_BLOCK * ATTN__SLICES_COPIED)) * (size_t)threads
                   : 0;
    s.sums = lines((p->of_items ? p->items : threads) * floats(p->kept * p->height * WIDTH));
    s.bias = g->bias ? lines(floats(panels * SIDE)) : 0;
    s.redone = lines(floats(attn__least(g->m, AGAIN_ROWS) * SIDE * attn__least(panels, AGAIN)));
    s.gathered = lines(floats(attn__least(g->m, AGAIN_ROWS) * g->k));
    s.again = lines(attn__pieces(g->m, SIDE) * panels * (int64_t)sizeof(uint16_t));
    return s;
}

static size_t sum_of(int threads, const sizes *s)
{
    return s->b + 2 * (size_t)threads * s->a + s->copies + s->sums + s->bias + s->redone + s->gathered + s->again;
}

/* The memory of a product, in the order of `sizes`. */
static void lay_out(attn__slices_product *p, int threads, const sizes *s, char *data)
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
    p->redone = (float *)(void *)(data + s->bias);
    p->gathered = (float *)(void *)((char *)p->redone + s->redone);
    p->again = (uint16_t *)(void *)((char *)p->gathered + s->gathered);
}

/* The bias of this group, with zeros to the end of its last panel. */
static void pad_bias(attn__slices_product *p)
{
    int64_t n = p->g->n;
    if (!p->g->bias)
        return;
    memcpy(p->padded, p->g->bias, (size_t)n * sizeof(float));
    memset(p->padded + n, 0, (size_t)(attn__round_up(n, SIDE) - n) * sizeof(float));
}

/* All rows of one group of columns.  False without memory. */
static bool product_group(attn_tape *tape, attn__slices_product *p, int64_t longest, bool packed)
{
    int threads = tape->context->threads;
    p->panels = attn__pieces(p->g->n, SIDE);
    pad_bias(p);
    memset(p->again, 0, (size_t)(attn__pieces(p->g->m, SIDE) * p->panels) * sizeof *p->again);
    for (p->begin = 0; p->begin < p->blocks.count; p->begin = p->end) {
        p->end = attn__least(p->begin + longest, p->blocks.count);
        if (!packed)
            attn__gemm_slices_pack_b(threads, p);
        if (!packed && attn__gemm_slices_hopeless(&p->b, p->end - p->begin))
            return attn__gemm_in_vectors(tape, p->g);
        attn__share_out(&p->shares, threads, p->items);
        attn__parallel_items(threads, threads, attn__gemm_slices_work, p);
    }
    return all_again(tape, p);
}

/* Beside the m n k of the product, B is packed at a cost of n k, A of m k, and C is stored at one of m n.  Measured,
 * one thread, against multiply-adds: 128 x 128 x 128 gains a tenth, 1280 x 256 x 64 a thirtieth, 1280 x 64 x 256 a
 * quarter, 64 x 512 x 512 three quarters; 96 x 96 x 96 loses a quarter. */
static bool pays(int64_t m, int64_t n, int64_t k)
{
    const double most_cost = 1.0 / 48;
    return 1.0 / (double)m + 1.0 / (double)n + 1.0 / (double)k <= most_cost;
}

bool attn__gemm_slices_takes(const attn_context *context, int64_t m, int64_t n, int64_t k)
{
    return attn__slices_for(context->isa) && m > 0 && n > 0 && k >= ATTN__SLICES_LEAST && pays(m, n, k);
}

/* The next columns of what is packed. */
static void pass_columns(attn__slices_b *b, int64_t n)
{
    b->tiles += n / SIDE * b->panel;
    b->panels += n / SIDE;
}

attn_status attn__gemm_slices_with(attn_tape *tape, const attn__slices_kernel *kernel, const attn__gemm_args *g,
                                   const attn__packed *packed)
{
    int threads = tape->context->threads;
    attn__slices_product p = {
        .kernel = kernel, .rows = attn__elementwise_for(false, tape->context->isa), .limit = attn__slices_limit(g->k)};
    packed = packed && packed->hold.data ? packed : NULL;
    divide(&p, threads, g->m);
    p.blocks = attn__gemm_slices_blocks(g->k);
    sizes s = sizes_of(threads, g, &p, packed != NULL);
    attn__hold scratch = attn__scratch(tape, sum_of(threads, &s));
    if (!scratch.data)
        return ATTN_ERROR_MEMORY;
    lay_out(&p, threads, &s, scratch.data);
    attn__gemm_slices_lay_out_b(&p, packed ? g->n : s.widest, s.longest, packed ? packed->hold.data : scratch.data);
    bool done = true;
    for (int64_t at = 0; at < g->n && done; at += s.widest) {
        attn__gemm_args group = part_of(g, 0, g->m, at, s.widest);
        p.g = &group;
        done = product_group(tape, &p, s.longest, packed != NULL);
        if (packed && at + s.widest < g->n)
            pass_columns(&p.b, s.widest);
    }
    attn__scratch_release(scratch);
    return done ? ATTN_OK : ATTN_ERROR_MEMORY;
}

attn_status attn__gemm_slices(attn_tape *tape, const attn__gemm_args *g, const attn__packed *packed)
{
    const attn__slices_kernel *kernel = attn__slices_for(tape->context->isa);
    bool has = packed && packed->hold.data;
    if (!kernel || g->dtype != ATTN_F32 || g->m == 0 || g->n == 0 || g->k < ATTN__SLICES_LEAST ||
        (!has && !pays(g->m, g->n, g->k)))
        return ATTN_ERROR_UNSUPPORTED;
    return attn__gemm_slices_with(tape, kernel, g, packed);
}
