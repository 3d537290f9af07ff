/* SPDX-License-Identifier: MIT
 * The operands of gemm_slices.h as tiles of slices. */
#include "base/parallel.h"
#include "tensor/gemm_slices.h"
#include "tensor/gemm_slices_work.h"

#include <math.h>
#include <string.h>

/* LINE: bytes; columns that one thread packs at a time. */
enum { LINE = 64, PACKED_AT_ONCE = 128 };

attn__slices_blocks attn__gemm_slices_blocks(int64_t k)
{
    return (attn__slices_blocks){k, attn__pieces(k, ATTN__SLICES_K_BLOCK)};
}

size_t attn__gemm_slices_lay_out_b(attn__slices_product *p, int64_t n, int64_t count, char *data)
{
    int64_t panels = attn__pieces(n, SIDE), depth = attn__least(count * ATTN__SLICES_K_BLOCK, p->blocks.k);
    int64_t panel = attn__pieces(depth, DEPTH) * ATTN__SLICES_STEP;
    size_t tiles = (size_t)(panels * panel);
    if (data)
        p->b = (attn__slices_b){.tiles = (int8_t *)data,
                                .panels = (attn__slices_panel *)(void *)(data + tiles),
                                .panel = panel,
                                .columns = panels * SIDE};
    return tiles + (size_t)(count * panels) * sizeof(attn__slices_panel);
}

bool attn__gemm_slices_hopeless(const attn__slices_b *b, int64_t blocks)
{
    int64_t count = blocks * (b->columns / SIDE), bad = 0;
    for (int64_t i = 0; i < count; i++)
        bad += isnan(b->panels[i].q);
    return 2 * bad > count;
}

/* ------------------------------------------------------------------------------------------------------- B */

/* What belongs to columns [at, at + columns) of op(B) within a K block. */
typedef struct place {
    int64_t k, depth;
    int8_t *tiles; /* of the first panel */
    attn__slices_panel *panels;
} place;

static place place_of_b(const attn__slices_product *p, int64_t at, int64_t c)
{
    int64_t k = attn__gemm_slices_k(&p->blocks, c);
    return (place){k, attn__gemm_slices_k(&p->blocks, c + 1) - k, attn__gemm_slices_tiles_of_b(p, at / SIDE, c),
                   p->b.panels + ((c - p->begin) * p->b.columns + at) / SIDE};
}

/* A row that is far away is prefetched. */
static void fetch(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += SIDE)
        __builtin_prefetch(x + i, 0, 3);
}

/* What will be written, and is far away. */
static void fetch_to_write(int8_t *data, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += LINE)
        __builtin_prefetch(data + i, 1, 3);
}

/* Up to 16 rows along k become one panel; those that are not there have any numbers.  Weights are far away, and
 * their rows too short for the machine to guess the next one: the next ones are prefetched meanwhile, and, at
 * `next`, if that is not NULL, the tiles of the panel after this one. */
static void pack_panel(const attn__slices_kernel *kernel, const float *x, int64_t ld, int64_t rows, int64_t depth,
                       int8_t *tiles, int8_t *next, attn__slices_panel *panel)
{
    enum { NEXT = 2 };
    int64_t bytes = attn__gemm_slices_bytes(SIDE, depth);
    attn__slices_rows columns;
    for (int64_t i = 0; i < SIDE; i++) {
        const float *row = x + (i < rows ? i : 0) * ld;
        if (i + NEXT < rows)
            fetch(row + NEXT * ld, depth);
        if (next)
            fetch_to_write(next + i * bytes / SIDE, bytes / SIDE);
        attn__slices_scale scale = kernel->scale(row, depth);
        kernel->quantize(row, scale.scale, depth, tiles + i * DEPTH);
        if (i < rows)
            kernel->measure(tiles + i * DEPTH, depth, scale, &columns, i);
        else
            attn__slices_note_none(&columns, i);
    }
    kernel->transpose(tiles, attn__pieces(depth, DEPTH) * ATTN__SLICES);
    attn__slices_panel_of(&columns, panel);
}

static void pack_rows_of_b(const attn__slices_product *p, int64_t at, int64_t columns, int64_t c, int thread)
{
    (void)thread;
    place to = place_of_b(p, at, c);
    const float *x = (const float *)p->g->b + at * p->g->ldb + to.k;
    for (int64_t i = 0; i < columns; i += SIDE) {
        int8_t *tiles = to.tiles + i / SIDE * p->b.panel;
        pack_panel(p->kernel, x + i * p->g->ldb, p->g->ldb, p->g->n - at - i, to.depth, tiles,
                   i + SIDE < columns ? tiles + p->b.panel : NULL, to.panels + i / SIDE);
    }
}

/* Adjacent columns of memory as panels of B; transposed, they are rows of A.  They are copied as they are looked at: rows
 * lie so far apart that lines push each other out of the second cache. */
static void quantize_columns(const attn__slices_kernel *kernel, const attn__slices_columns *from, int8_t *tiles,
                             int64_t panel, bool transpose, attn__slices_rows *rows)
{
    enum { COPIED = ATTN__SLICES_COPIED };
    attn__slices_scale scale[PACKED_AT_ONCE];
    for (int64_t i = 0; i < from->n; i += SIDE, tiles += panel) {
        attn__slices_columns all = *from, some = {.x = from->copy + i % COPIED, .ld = COPIED, .k = from->k};
        all.x += i;
        all.n = attn__least(from->n - i, COPIED);
        some.n = attn__least(from->n - i, SIDE);
        if (i % COPIED == 0)
            kernel->scale_columns(&all, scale + i);
        kernel->quantize_columns(&some, scale + i, tiles);
        kernel->measure_columns(tiles, from->k, some.n, scale + i, rows + i / SIDE);
        if (transpose)
            kernel->transpose(tiles, attn__pieces(from->k, DEPTH) * ATTN__SLICES);
    }
}

static float *copy_of(const attn__slices_product *p, int thread)
{
    return p->copies + (int64_t)thread * ATTN__SLICES_K_BLOCK * ATTN__SLICES_COPIED;
}

static void pack_columns_of_b(const attn__slices_product *p, int64_t at, int64_t columns, int64_t c, int thread)
{
    place to = place_of_b(p, at, c);
    attn__slices_rows rows[PACKED_AT_ONCE / SIDE];
    attn__slices_columns from = {(const float *)p->g->b + to.k * p->g->ldb + at, p->g->ldb, to.depth, columns,
                                 copy_of(p, thread)};
    quantize_columns(p->kernel, &from, to.tiles, p->b.panel, false, rows);
    for (int64_t i = 0; i < columns; i += SIDE)
        attn__slices_panel_of(rows + i / SIDE, to.panels + i / SIDE);
}

static void pack_item(void *user, int64_t item, int thread)
{
    const attn__slices_product *p = user;
    int64_t at = item * PACKED_AT_ONCE, columns = attn__least(p->g->n - at, PACKED_AT_ONCE);
    for (int64_t c = p->begin; c < p->end; c++)
        (p->g->transpose_b ? pack_rows_of_b : pack_columns_of_b)(p, at, columns, c, thread);
}

void attn__gemm_slices_pack_b(int threads, attn__slices_product *p)
{
    attn__parallel_items(threads, attn__pieces(p->g->n, PACKED_AT_ONCE), pack_item, p);
}

/* ------------------------------------------------------------------------------------------------------- A */

void attn__gemm_slices_transpose_a(const attn__slices_product *p, int64_t at, int64_t height, int64_t c, int thread,
                                   int8_t *tiles, attn__slices_rows *rows)
{
    int64_t k = attn__gemm_slices_k(&p->blocks, c), depth = attn__gemm_slices_k(&p->blocks, c + 1) - k;
    int64_t panel = attn__gemm_slices_bytes(SIDE, depth);
    for (int64_t i = 0; i < height; i += PACKED_AT_ONCE) {
        attn__slices_columns from = {(const float *)p->g->a + k * p->g->lda + at + i, p->g->lda, depth,
                                     attn__least(height - i, PACKED_AT_ONCE), copy_of(p, thread)};
        quantize_columns(p->kernel, &from, tiles + i / SIDE * panel, panel, true, rows + i / SIDE);
    }
}

/* -------------------------------------------------------------------------------------------------- packed */

/* A product of which only B is known. */
static attn__slices_product product_of(attn_context *context, const attn__gemm_args *g)
{
    attn__slices_product p = {.g = g, .kernel = attn__slices_for(context->isa)};
    p.blocks = attn__gemm_slices_blocks(g->k);
    p.end = p.blocks.count;
    return p;
}

size_t attn__gemm_slices_packed_bytes(attn_context *context, const attn__gemm_args *g)
{
    attn__slices_product p = product_of(context, g);
    return attn__gemm_slices_lay_out_b(&p, g->n, p.end, NULL);
}

size_t attn__gemm_slices_copies_bytes(const attn_context *context)
{
    return (size_t)context->threads * ATTN__SLICES_K_BLOCK * ATTN__SLICES_COPIED * sizeof(float);
}

bool attn__gemm_slices_pack_to(attn_context *context, const attn__gemm_args *g, float *copies, char *data)
{
    attn__slices_product p = product_of(context, g);
    p.copies = copies;
    (void)attn__gemm_slices_lay_out_b(&p, g->n, p.end, data);
    attn__gemm_slices_pack_b(context->threads, &p);
    return !attn__gemm_slices_hopeless(&p.b, p.end);
}

attn_status attn__gemm_slices_pack(attn_tape *tape, const float *b, int64_t ldb, int64_t n, int64_t k,
                                   attn__packed *packed)
{
    attn__gemm_args args = {.dtype = ATTN_F32, .transpose_b = true, .n = n, .k = k, .b = b, .ldb = ldb};
    *packed = (attn__packed){0};
    if (!attn__slices_for(tape->context->isa) || n == 0 || k < ATTN__SLICES_LEAST)
        return ATTN_ERROR_UNSUPPORTED;
    attn__hold hold = attn__scratch(tape, attn__gemm_slices_packed_bytes(tape->context, &args));
    if (!hold.data)
        return ATTN_ERROR_MEMORY;
    *packed = (attn__packed){ATTN_F32, n, k, hold, .slices = true};
    if (attn__gemm_slices_pack_to(tape->context, &args, NULL, hold.data))
        return ATTN_OK;
    attn__gemm_unpack(packed);
    return ATTN_ERROR_UNSUPPORTED;
}
