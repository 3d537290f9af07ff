/* SPDX-License-Identifier: MIT
 * The engine's own product in single precision, made of register tiles: B is packed strip by strip into aligned rows of
 * vectors, and C is summed in a block that stays in the cache, or where it belongs.  A block of C is one item for a
 * thread or, of few blocks and a long k, what a part of k gives.  Elements are summed along k in parts of one depth,
 * each added to the sum of those before, so that bits depend neither on the items nor on the threads.
 *
 * Where B lies across the vectors, the product of the transposes may have less to turn: C^T = op(B)^T op(A)^T. */
#include "base/integers.h"
#include "base/parallel.h"
#include "kernels/rows/rows.h"
#include "kernels/tile/tile.h"
#include "tensor/gemm.h"
#include "tensor/op.h"

#include <string.h>

/* Columns of a strip are whole vectors of every register tile; a block has at most so many COLUMNS and ROWS. */
enum { STRIP = 64, COLUMNS = 2 * STRIP, DEPTH = 256, ROWS = 256 };
enum { B_SIZE = DEPTH * STRIP, SCRATCH = B_SIZE + ROWS * COLUMNS };

typedef struct own_product {
    attn__gemm_args g; /* of the transposes where C is turned */
    bool turned;
    const attn__tile_kernel *tile;
    const attn__rows_table *rows;
    float *scratch; /* for each thread: B, C */
    int64_t height, width, column_blocks, blocks;
    float *parts; /* [part of k][m][n] where each is an item of its own */
} own_product;

/* A block of C: rows from m0 on, columns from n0 on, where B is packed and its sums are made. */
typedef struct block {
    int64_t m0, m, n0, n;
    float *b, *c;
    int64_t ldc;
} block;

/* y[rows][columns] from x, whose columns or whose rows (`across`) are adjacent. */
static void copy(const own_product *p, const float *x, int64_t ldx, bool across, int64_t rows, int64_t columns,
                 float *y, int64_t ldy, bool add)
{
    attn__rows_args args = {.x = x,
                            .y = y,
                            .s = {1},
                            .add = add,
                            .rank = 2,
                            .shape = {rows, columns},
                            .stride_x = {across ? 1 : ldx, across ? ldx : 1},
                            .stride_y = {ldy, 1}};
    p->rows->run[ATTN__ROWS_STRIDED](&args, 0, rows);
}

/* Whether B is as if it was packed: the strip lies in whole vectors, in rows not far apart. */
static bool is_packed(const own_product *p, int64_t n)
{
    return !p->g.transpose_b && p->g.ldb <= COLUMNS && n % p->tile->lanes == 0;
}

/* Some columns of op(B) along part of k, with zeros to whole vectors. */
static void pack_b(const own_product *p, int64_t column, int64_t n, int64_t k, int64_t depth, float *to)
{
    const attn__gemm_args *g = &p->g;
    int64_t width = attn__round_up(n, p->tile->lanes);
    const float *b = (const float *)g->b + (g->transpose_b ? column * g->ldb + k : k * g->ldb + column);
    copy(p, b, g->ldb, g->transpose_b, depth, n, to, STRIP, false);
    for (int64_t i = 0; i < depth && width > n; i++)
        memset(to + i * STRIP + n, 0, (size_t)(width - n) * sizeof *to);
}

/* One part of k, strip after strip.  A is read where it lies, transposed or not: packing it first only took longer. */
static void add_part(const own_product *p, const block *t, int64_t k, bool accumulate)
{
    const attn__gemm_args *g = &p->g;
    bool turned = g->transpose_a;
    attn__tile_args args = {.m = t->m,
                            .k = attn__least(g->k - k, DEPTH),
                            .a = (const float *)g->a + (turned ? k * g->lda + t->m0 : t->m0 * g->lda + k),
                            .am = turned ? 1 : g->lda,
                            .ak = turned ? g->lda : 1,
                            .ldc = t->ldc,
                            .accumulate = accumulate};
    for (int64_t strip = 0; strip < t->n; strip += STRIP) {
        int64_t n = attn__least(t->n - strip, STRIP), column = t->n0 + strip;
        bool packed = is_packed(p, n);
        if (!packed)
            pack_b(p, column, n, k, args.k, t->b);
        args.n = attn__round_up(n, p->tile->lanes);
        args.b = packed ? (const float *)g->b + k * g->ldb + column : t->b;
        args.ldb = packed ? g->ldb : STRIP;
        args.c = t->c + strip;
        p->tile->run(&args);
    }
}

/* Whether sums are made where they belong: whole vectors, and nothing there that they are added to. */
static bool is_in_place(const own_product *p, int64_t n)
{
    return !p->turned && !p->g.add && n % p->tile->lanes == 0;
}

static float *place_of(const own_product *p, const block *t)
{
    return (float *)p->g.c + (p->turned ? t->n0 * p->g.ldc + t->m0 : t->m0 * p->g.ldc + t->n0);
}

static void store(const own_product *p, const block *t)
{
    copy(p, t->c, t->ldc, p->turned, p->turned ? t->n : t->m, p->turned ? t->m : t->n, place_of(p, t), p->g.ldc,
         p->g.add);
}

static block block_of(const own_product *p, int64_t index, int thread)
{
    block t = {.m0 = index / p->column_blocks * p->height, .n0 = index % p->column_blocks * p->width};
    t.m = attn__least(p->g.m - t.m0, p->height);
    t.n = attn__least(p->g.n - t.n0, p->width);
    t.b = p->scratch + (int64_t)thread * SCRATCH;
    t.c = is_in_place(p, t.n) ? place_of(p, &t) : t.b + B_SIZE;
    t.ldc = is_in_place(p, t.n) ? p->g.ldc : attn__round_up(t.n, p->tile->lanes);
    return t;
}

static void product_block(void *user, int64_t item, int thread)
{
    const own_product *p = user;
    block t = block_of(p, item, thread);
    for (int64_t k = 0; k < p->g.k; k += DEPTH)
        add_part(p, &t, k, k > 0);
    if (!is_in_place(p, t.n))
        store(p, &t);
}

static int64_t size_of_part(const own_product *p)
{
    return p->g.m * attn__round_up(p->g.n, p->tile->lanes);
}

/* Rows [row, row + m) of all columns, in one of the parts. */
static block rows_of_part(const own_product *p, int64_t part, int64_t row, int64_t m)
{
    int64_t ld = attn__round_up(p->g.n, p->tile->lanes);
    return (block){.m0 = row, .m = m, .n = p->g.n, .c = p->parts + part * size_of_part(p) + row * ld, .ldc = ld};
}

static void product_part(void *user, int64_t item, int thread)
{
    const own_product *p = user;
    block t = rows_of_part(p, item, 0, p->g.m);
    t.b = p->scratch + (int64_t)thread * SCRATCH;
    add_part(p, &t, item * DEPTH, false);
}

/* Rows of the first part get the others added in turn, and go to where they belong. */
static void add_parts(void *user, int64_t begin, int64_t end)
{
    const own_product *p = user;
    block t = rows_of_part(p, 0, begin, end - begin);
    for (int64_t i = 1; i < attn__pieces(p->g.k, DEPTH); i++)
        p->rows->run[ATTN__ROWS_ADD](&(attn__rows_args){.x = t.c, .x2 = rows_of_part(p, i, begin, t.m).c, .y = t.c}, 0,
                                     t.m * t.ldc);
    store(p, &t);
}

/* Numbers that are moved from columns to rows, one way or the other. */
static bool is_better_turned(const attn__gemm_args *g)
{
    int64_t plain = g->transpose_b ? g->n * g->k : 0;
    int64_t turned = (g->transpose_a ? 0 : g->m * g->k) + g->m * g->n;
    return turned < plain;
}

static attn__gemm_args transposes(const attn__gemm_args *g)
{
    attn__gemm_args t = *g;
    t.transpose_a = !g->transpose_b;
    t.transpose_b = !g->transpose_a;
    t.m = g->n;
    t.n = g->m;
    t.a = g->b;
    t.lda = g->ldb;
    t.b = g->a;
    t.ldb = g->lda;
    return t;
}

/* Blocks of rows, so many that threads have as much to do: also where the last block of columns is narrow, as a thread
 * has all blocks of its rows. */
static void divide(own_product *p, int threads)
{
    enum { MANY = 8, LEAST = 16 };
    p->width = attn__pieces(p->g.n, STRIP) % 2 == 0 ? COLUMNS : STRIP;
    p->column_blocks = attn__pieces(p->g.n, p->width);
    int64_t rows = attn__pieces(p->g.m, ROWS), missing = p->column_blocks * p->width - p->g.n;
    bool even = rows * p->column_blocks % threads == 0 && missing * threads * MANY <= p->g.n;
    if (!even && rows * p->column_blocks < MANY * threads)
        rows = attn__least(attn__round_up(rows, threads), attn__pieces(p->g.m, LEAST));
    p->height = attn__pieces(p->g.m, rows);
    p->blocks = attn__pieces(p->g.m, p->height) * p->column_blocks;
}

/* One block, and a k so long that threads share it out evenly: as the gradient of a small layer's weights.  How many
 * parts. */
static int64_t parts_of(const own_product *p, int threads)
{
    enum { MOST = 64, LARGEST = 18432 };
    int64_t parts = attn__pieces(p->g.k, DEPTH), share = attn__pieces(parts, threads) * DEPTH;
    bool even = 4 * share * threads <= 5 * p->g.k;
    return threads > 1 && even && p->g.n <= COLUMNS && size_of_part(p) <= LARGEST && parts <= MOST ? parts : 0;
}

/* A part that takes some two microseconds is worth waking a thread for. */
static int threads_for(const attn_context *context, const attn__gemm_args *g)
{
    const double worth = 1 << 18;
    double parts = (double)g->m * (double)g->n * (double)g->k / worth;
    return parts < context->threads ? (int)attn__most((int64_t)parts, 1) : context->threads;
}

bool attn__gemm_own(attn_tape *tape, const attn__gemm_args *args)
{
    enum { GRAIN = 16 };
    int threads = threads_for(tape->context, args);
    own_product p = {.g = *args,
                     .tile = attn__tile_for(tape->context->isa),
                     .rows = attn__rows_for(false, tape->context->isa),
                     .turned = is_better_turned(args)};
    if (p.turned)
        p.g = transposes(args);
    divide(&p, threads);
    int64_t parts = parts_of(&p, threads);
    threads = (int)attn__least(threads, parts > 0 ? parts : p.blocks);
    size_t floats = (size_t)threads * SCRATCH + (size_t)(parts * size_of_part(&p));
    attn__hold scratch = attn__scratch(tape, floats * sizeof(float));
    if (!scratch.data)
        return false;
    p.scratch = scratch.data;
    p.parts = p.scratch + (int64_t)threads * SCRATCH;
    attn__parallel_items(threads, parts > 0 ? parts : p.blocks, parts > 0 ? product_part : product_block, &p);
    if (parts > 0)
        attn__parallel_range(threads, p.g.m, GRAIN, add_parts, &p);
    attn__scratch_release(scratch);
    return true;
}
