/* SPDX-License-Identifier: MIT
 * Products of f32 matrices in the matrix unit.  B is packed first, as much of it as fits the third cache; then each
 * item takes some rows of A, packs a part of them that stays in the second cache, and multiplies it by all that is
 * packed, whose tiles stream past.  Sums that are not finite are done again without the unit: parts of what is infinite
 * are no numbers, and an overflow may have either sign. */
#include "tensor/gemm_parts.h"

#include "base/integers.h"
#include "base/parallel.h"
#include "kernels/parts/parts.h"
#include "tensor/op.h"

#include <math.h>
#include <string.h>

enum { SIDE = ATTN__PARTS_SIDE, PARTS = ATTN__PARTS_F32, CELL = ATTN__PARTS_F32 * ATTN__PARTS_TILE, LINE = 64 };
/* An item's block of A takes at most 1.2 MiB, the sums of a chunk of columns 0.8; panels of A and B, two tiles wide and
 * as deep as said here, 12 KiB each.  (128 deep, fetching ahead costs a quarter.) */
enum { ROWS = 192, LONG = 1024, COLUMNS = 1024, DEPTH = 64 };
_Static_assert(COLUMNS <= (int)ATTN__ROWS_BLOCK, "the squares of a row of sums are one sum");
/* Numbers of B packed at once, 18 MiB, its columns, and those that one thread packs at a time. */
enum { PACKED = 3 << 20, WIDEST = 3072, PACKED_AT_ONCE = 128 };

typedef struct parts_product {
    const attn__gemm_args *g; /* of this group of columns */
    const attn__parts_kernel *kernel;
    const attn__rows_table *rows;
    int64_t height, items, chunks; /* rows of an item; items; each item's pieces of some columns */
    int64_t begin, end;            /* the part of k that is packed */
    attn__parts_side b;
    uint16_t *a; /* of each thread */
    size_t a_step;
    float *sums; /* of each thread, or of each item where B is packed in parts of k */
    bool *odd;   /* of each 16 rows' chunks: not finite */
    bool *odd_b; /* of each piece of B */
} parts_product;

/* From one row of sums to the next: not a power of two, whose rows would share a few sets of the first cache. */
static int64_t row_of_sums(int64_t columns)
{
    return (attn__pieces(columns, SIDE) + 1) * SIDE;
}

/* -------------------------------------------------------------------------------------------------- packing */

/* Columns [at, at + columns) of op(B) from row k0 on.  False if one is not finite. */
static bool split_b(const attn__parts_kernel *kernel, const attn__gemm_args *g, int64_t at, int64_t columns, int64_t k0,
                    int64_t depth, const attn__parts_side *to)
{
    const float *b = (const float *)g->b + (g->transpose_b ? at * g->ldb + k0 : k0 * g->ldb + at);
    attn__parts_rows rows = {b, ATTN_F32, NULL, g->ldb, depth, columns, 1.0f, PARTS};
    if (!g->transpose_b)
        return kernel->split_pairs(&rows, to);
    rows.rows = columns;
    rows.columns = depth;
    bool finite = kernel->split_rows(&rows, to);
    kernel->turn(to->data, attn__pieces(columns, SIDE) * to->block / ATTN__PARTS_TILE);
    return finite;
}

/* Rows [at, at + rows) of op(A), in the same way. */
static void split_a(const attn__parts_kernel *kernel, const attn__gemm_args *g, int64_t at, int64_t height, int64_t k0,
                    int64_t depth, const attn__parts_side *to)
{
    const float *a = (const float *)g->a + (g->transpose_a ? k0 * g->lda + at : at * g->lda + k0);
    attn__parts_rows rows = {a, ATTN_F32, NULL, g->lda, height, depth, 1.0f, PARTS};
    if (!g->transpose_a) {
        kernel->split_rows(&rows, to);
        return;
    }
    rows.rows = depth;
    rows.columns = height;
    kernel->split_pairs(&rows, to);
    kernel->turn(to->data, attn__pieces(height, SIDE) * to->block / ATTN__PARTS_TILE);
}

static void pack_item(void *user, int64_t item, int thread)
{
    const parts_product *p = user;
    attn__parts_side to = p->b;
    int64_t at = item * PACKED_AT_ONCE;
    (void)thread;
    to.data += at / SIDE * to.block;
    p->odd_b[item] =
        !split_b(p->kernel, p->g, at, attn__least(p->g->n - at, PACKED_AT_ONCE), p->begin, p->end - p->begin, &to);
}

/* B's rows [begin, end).  False if some number is not finite. */
static bool pack_group(int threads, parts_product *p)
{
    int64_t items = attn__pieces(p->g->n, PACKED_AT_ONCE);
    attn__parallel_items(threads, items, pack_item, p);
    for (int64_t i = 0; i < items; i++)
        if (p->odd_b[i])
            return false;
    return true;
}

/* Most rows have squares that can be summed. */
static bool all_finite(const parts_product *p, const float *x, int64_t n)
{
    double squares = 0;
    p->rows->run[ATTN__ROWS_SQUARES](&(attn__rows_args){.x = x, .y = &squares, .n = n}, 0, 1);
    bool finite = isfinite(squares);
    for (int64_t i = 0; i < n && !finite; i++) {
        if (!isfinite(x[i]))
            return false;
    }
    return true;
}

/* A row of sums to C, and what follows the product. */
static void store_row(const parts_product *p, const float *sums, int64_t row, int64_t column, int64_t n)
{
    const attn__gemm_args *g = p->g;
    float *c = (float *)g->c + row * g->ldc + column;
    if (g->add) {
        for (int64_t j = 0; j < n; j++)
            c[j] += sums[j];
    } else {
        memcpy(c, sums, (size_t)n * sizeof *c);
    }
    attn__rows_args after = {
        .x = g->bias ? (const float *)g->bias + column : NULL, .y = c, .n = n, .kind = (int)g->activation};
    if (g->bias || g->activation != ATTN_IDENTITY)
        p->rows->run[ATTN__ROWS_BIAS_ACTIVATE](&after, 0, 1);
}

/* Some rows of A and what they are summed in. */
typedef struct block {
    int64_t row, height;
    int64_t k, depth; /* of A that is packed */
    attn__parts_side a;
    float *sums; /* of a chunk */
    int64_t ld;
} block;

/* Two columns of tiles by all of A, some of k, in which B's panel stays in the first cache.  What comes after it of B
 * is fetched into the second cache meanwhile: the third is far away. */
static void sum_panel(const parts_product *p, const block *t, int64_t column, int64_t columns, int64_t k, int64_t depth)
{
    int64_t blocks = attn__pieces(t->height, SIDE), steps = attn__pieces(depth, ATTN__PARTS_DEPTH);
    attn__parts_args args = {.n = columns, .k = steps, .parts = PARTS, .a = t->a, .b = p->b, .ldc = t->ld,
                             .accumulate = k > 0};
    args.b.data += column * p->b.block + (k - p->begin) / ATTN__PARTS_DEPTH * p->b.step;
    args.a.data += (k - t->k) / ATTN__PARTS_DEPTH * t->a.step;
    const char *next = (const char *)(args.b.data + 2 * p->b.block);
    int64_t panel = steps * CELL * 2, each = attn__pieces(2 * panel, LINE * attn__pieces(blocks, 2)) * LINE;
    for (int64_t m = 0, at = 0; m < blocks; m += 2) {
        for (int64_t end = attn__least(at + each, 2 * panel); at < end; at += LINE)
            __builtin_prefetch(next + (at < panel ? at : at - panel + p->b.block * 2), 0, 2);
        args.m = attn__least(blocks - m, 2);
        args.c = t->sums + m * SIDE * t->ld;
        p->kernel->run(&args);
        args.a.data += 2 * t->a.block;
    }
}

/* One chunk of columns by what is packed of A. */
static void sum_chunk(const parts_product *p, const block *t, int64_t column, int64_t columns)
{
    for (int64_t k = t->k; k < t->k + t->depth; k += DEPTH) {
        for (int64_t n = 0; n < columns; n += 2) {
            block panel = *t;
            panel.sums += n * SIDE;
            sum_panel(p, &panel, column + n, attn__least(columns - n, 2), k, attn__least(t->k + t->depth - k, DEPTH));
        }
    }
}

/* A number of A that is not finite makes all sums of its row so.  Rows are stored, or left to be done again, by 16,
 * which no number of threads changes: those beside them keep their bits. */
static void store_chunk(const parts_product *p, const block *t, int64_t chunk, int64_t n)
{
    for (int64_t at = 0; at < t->height; at += SIDE) {
        bool *odd = p->odd + (t->row + at) / SIDE * p->chunks + chunk;
        int64_t end = attn__least(at + SIDE, t->height);
        *odd = false;
        for (int64_t i = at; i < end && !*odd; i++)
            *odd = !all_finite(p, t->sums + i * t->ld, n);
        for (int64_t i = at; i < end && !*odd; i++)
            store_row(p, t->sums + i * t->ld, t->row + i, chunk * COLUMNS, n);
    }
}

/* Chunks of columns one after the other; where A is packed once they share the memory of their sums. */
static void product_item(void *user, int64_t item, int thread)
{
    const parts_product *p = user;
    bool whole = p->begin == 0 && p->end == p->g->k, once = whole && p->g->k <= LONG;
    block t = {.row = item * p->height, .ld = row_of_sums(once ? attn__least(COLUMNS, p->g->n) : p->g->n)};
    float *sums = p->sums + (whole ? (int64_t)thread : item) * p->height * t.ld;
    t.height = attn__least(p->g->m - t.row, p->height);
    p->kernel->begin();
    for (t.k = p->begin; t.k < p->end; t.k += t.depth) {
        t.depth = attn__least(p->end - t.k, LONG);
        t.a = attn__parts_packed(p->a + (size_t)thread * p->a_step, attn__pieces(t.depth, ATTN__PARTS_DEPTH), PARTS);
        split_a(p->kernel, p->g, t.row, t.height, t.k, t.depth, &t.a);
        for (int64_t i = 0; i < p->chunks; i++) {
            int64_t at = i * COLUMNS, n = attn__least(p->g->n - at, COLUMNS);
            t.sums = sums + (once ? 0 : at);
            sum_chunk(p, &t, at / SIDE, attn__pieces(n, SIDE));
            if (t.k + t.depth == p->g->k)
                store_chunk(p, &t, i, n);
        }
    }
    p->kernel->end();
}

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

/* What has sums that are not finite, as the other products have them. */
static bool odd_chunks(attn_tape *tape, const parts_product *p)
{
    bool done = true;
    for (int64_t i = 0; i < attn__pieces(p->g->m, SIDE) * p->chunks && done; i++) {
        attn__gemm_args part = part_of(p->g, i / p->chunks * SIDE, SIDE, i % p->chunks * COLUMNS, COLUMNS);
        done = !p->odd[i] || attn__gemm_in_vectors(tape, &part);
    }
    return done;
}

/* --------------------------------------------------------------------------------------------------- groups */

/* Equal blocks, as many for each thread: bits do not depend on them. */
static int64_t height_of(int threads, int64_t m)
{
    int64_t blocks = attn__pieces(attn__pieces(m, ROWS), threads) * threads;
    return attn__pieces(attn__pieces(m, blocks), SIDE) * SIDE;
}

typedef struct sizes {
    int64_t widest, longest; /* parts of n and k in which B is packed */
    size_t b, a, sums, odd;  /* bytes */
} sizes;

static size_t lines(int64_t bytes)
{
    return (size_t)(attn__pieces(bytes, LINE) * LINE);
}

static int64_t packed_numbers(int64_t rows, int64_t depth)
{
    return attn__pieces(rows, SIDE) * attn__pieces(depth, ATTN__PARTS_DEPTH) * CELL;
}

static sizes sizes_of(int threads, const attn__gemm_args *g, const parts_product *p, bool packed)
{
    sizes s = {.widest = packed ? g->n : attn__least(g->n, WIDEST), .longest = g->k};
    if (!packed && s.widest * g->k > PACKED)
        s.longest = attn__least(g->k, attn__most(PACKED / s.widest / LONG, 1) * LONG);
    bool whole = s.longest == g->k, once = whole && g->k <= LONG;
    int64_t ld = row_of_sums(once ? attn__least(COLUMNS, s.widest) : s.widest);
    s.b = packed ? 0 : lines(packed_numbers(s.widest, s.longest) * (int64_t)sizeof(uint16_t));
    s.a = lines(packed_numbers(p->height, attn__least(s.longest, LONG)) * (int64_t)sizeof(uint16_t));
    s.sums = lines((whole ? threads : p->items) * p->height * ld * (int64_t)sizeof(float));
    s.odd = lines(attn__pieces(g->m, SIDE) * attn__pieces(s.widest, COLUMNS));
    return s;
}

/* All rows of one group of columns.  False without memory. */
static bool product_group(attn_tape *tape, parts_product *p, int64_t longest, bool packed)
{
    int threads = tape->context->threads;
    p->chunks = attn__pieces(p->g->n, COLUMNS);
    for (p->begin = 0; p->begin < p->g->k; p->begin = p->end) {
        p->end = attn__least(p->begin + longest, p->g->k);
        if (!packed) {
            p->b = attn__parts_packed(p->b.data, attn__pieces(p->end - p->begin, ATTN__PARTS_DEPTH), PARTS);
            if (!pack_group(threads, p))
                return attn__gemm_in_vectors(tape, p->g);
        }
        attn__parallel_items(threads, p->items, product_item, p);
    }
    return odd_chunks(tape, p);
}

attn_status attn__gemm_parts_pack(attn_tape *tape, const float *b, int64_t ldb, int64_t n, int64_t k,
                                  attn__packed *packed)
{
    attn__gemm_args args = {.dtype = ATTN_F32, .transpose_b = true, .n = n, .k = k, .b = b, .ldb = ldb};
    parts_product p = {.g = &args, .kernel = attn__parts_for(tape->context->isa), .end = k};
    *packed = (attn__packed){0};
    if (!p.kernel || n == 0 || k == 0)
        return ATTN_UNSUPPORTED;
    int64_t steps = attn__pieces(k, ATTN__PARTS_DEPTH);
    size_t size = lines(attn__pieces(n, SIDE) * steps * CELL * (int64_t)sizeof(uint16_t));
    attn__hold hold = attn__scratch(tape, size + (size_t)attn__pieces(n, PACKED_AT_ONCE));
    if (!hold.data)
        return ATTN_MEMORY;
    *packed = (attn__packed){ATTN_F32, n, k, hold, .parts = true};
    p.b = attn__parts_packed(hold.data, steps, PARTS);
    p.odd_b = (bool *)hold.data + size;
    if (pack_group(tape->context->threads, &p))
        return ATTN_OK;
    attn__gemm_unpack(packed);
    return ATTN_UNSUPPORTED;
}

/* Beside the m n k of the product, B is packed at a cost of n k, A of m k, and C is stored at one of m n.  Measured:
 * 128 x 256 x 256 gains 7 %, and 1280 x 256 x 64 loses 9 %. */
static bool pays(const attn__gemm_args *g, bool packed)
{
    const double most_cost = 1.0 / 64;
    return packed || 1.0 / (double)g->m + 1.0 / (double)g->n + 1.0 / (double)g->k <= most_cost;
}

attn_status attn__gemm_parts(attn_tape *tape, const attn__gemm_args *g, const attn__packed *packed)
{
    int threads = tape->context->threads;
    parts_product p = {.kernel = attn__parts_for(tape->context->isa),
                       .rows = attn__rows_for(false, tape->context->isa)};
    packed = packed && packed->hold.data ? packed : NULL;
    if (!p.kernel || g->dtype != ATTN_F32 || g->m == 0 || g->n == 0 || g->k == 0 || !pays(g, packed != NULL))
        return ATTN_UNSUPPORTED;
    p.height = height_of(threads, g->m);
    p.items = attn__pieces(g->m, p.height);
    sizes s = sizes_of(threads, g, &p, packed != NULL);
    size_t odd_b = (size_t)attn__pieces(s.widest, PACKED_AT_ONCE);
    attn__hold scratch = attn__scratch(tape, s.b + (size_t)threads * s.a + s.sums + s.odd + odd_b);
    if (!scratch.data)
        return ATTN_MEMORY;
    char *data = scratch.data;
    p.b = attn__parts_packed(packed ? packed->hold.data : scratch.data, attn__pieces(g->k, ATTN__PARTS_DEPTH), PARTS);
    p.a = (uint16_t *)(void *)(data + s.b);
    p.a_step = s.a / sizeof *p.a;
    p.sums = (float *)(void *)(data + s.b + (size_t)threads * s.a);
    p.odd = (bool *)p.sums + s.sums;
    p.odd_b = p.odd + s.odd;
    bool done = true;
    for (int64_t at = 0; at < g->n && done; at += s.widest) {
        attn__gemm_args group = part_of(g, 0, g->m, at, s.widest);
        p.g = &group;
        done = product_group(tape, &p, s.longest, packed != NULL);
    }
    attn__scratch_release(scratch);
    return done ? ATTN_OK : ATTN_MEMORY;
}
