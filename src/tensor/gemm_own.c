/* SPDX-License-Identifier: MIT
 * The engine's own product in single precision, made of register tiles: B is packed block by block into
 * aligned rows of vectors, C is summed in a block that stays in the cache.  A block of C is one item for a
 * thread, so the bits do not depend on the number of threads. */
#include "base/integers.h"
#include "base/parallel.h"
#include "kernels/tile/tile.h"
#include "tensor/gemm.h"
#include "tensor/op.h"

/* 192 columns are a multiple of the vectors of every register tile (48, 24, 8). */
enum { ROWS = 96, COLUMNS = 192, DEPTH = 256 };

typedef struct own_product {
    const attn__gemm_args *args;
    const attn__tile_kernel *tile;
    float *scratch; /* for each thread, a block of B and a block of C */
    int64_t row_blocks;
} own_product;

enum { B_SIZE = DEPTH * COLUMNS, C_SIZE = ROWS * COLUMNS };

/* Rows k0.. and columns n0.. of op(B), padded with zeros to `width` columns. */
static void pack_b(const attn__gemm_args *g, float *packed, int64_t k0, int64_t depth, int64_t n0, int64_t n,
                   int64_t width)
{
    const float *b = g->b;
    for (int64_t k = 0; k < depth; k++) {
        float *row = packed + k * COLUMNS;
        if (g->transpose_b) {
            for (int64_t j = 0; j < n; j++)
                row[j] = b[(n0 + j) * g->ldb + k0 + k];
        } else {
            for (int64_t j = 0; j < n; j++)
                row[j] = b[(k0 + k) * g->ldb + n0 + j];
        }
        for (int64_t j = n; j < width; j++)
            row[j] = 0;
    }
}

static void store_c(const attn__gemm_args *g, const float *block, int64_t m0, int64_t m, int64_t n0, int64_t n)
{
    for (int64_t i = 0; i < m; i++) {
        float *c = (float *)g->c + (m0 + i) * g->ldc + n0;
        const float *row = block + i * COLUMNS;
        if (g->add) {
            for (int64_t j = 0; j < n; j++)
                c[j] += row[j];
        } else {
            for (int64_t j = 0; j < n; j++)
                c[j] = row[j];
        }
    }
}

static void product_block(void *user, int64_t item, int thread)
{
    const own_product *p = user;
    const attn__gemm_args *g = p->args;
    float *packed = p->scratch + (int64_t)thread * (B_SIZE + C_SIZE), *block = packed + B_SIZE;
    int64_t m0 = item % p->row_blocks * ROWS, n0 = item / p->row_blocks * COLUMNS;
    int64_t m = attn__least(g->m - m0, ROWS), n = attn__least(g->n - n0, COLUMNS);
    int64_t width = (n + p->tile->lanes - 1) / p->tile->lanes * p->tile->lanes;
    int64_t am = g->transpose_a ? 1 : g->lda, ak = g->transpose_a ? g->lda : 1;
    for (int64_t k0 = 0; k0 < g->k; k0 += DEPTH) {
        int64_t depth = attn__least(g->k - k0, DEPTH);
        pack_b(g, packed, k0, depth, n0, n, width);
        p->tile->run(&(attn__tile_args){.m = m,
                                        .n = width,
                                        .k = depth,
                                        .a = (const float *)g->a + m0 * am + k0 * ak,
                                        .am = am,
                                        .ak = ak,
                                        .b = packed,
                                        .ldb = COLUMNS,
                                        .c = block,
                                        .ldc = COLUMNS,
                                        .accumulate = k0 > 0});
    }
    store_c(g, block, m0, m, n0, n);
}

bool attn__gemm_own(attn_tape *tape, const attn__gemm_args *args)
{
    own_product p = {.args = args, .tile = attn__tile_for(tape->context->isa)};
    p.row_blocks = (args->m + ROWS - 1) / ROWS;
    int64_t items = p.row_blocks * ((args->n + COLUMNS - 1) / COLUMNS);
    int threads = (int)attn__least(tape->context->threads, items);
    attn__hold scratch = attn__scratch(tape, (size_t)threads * (B_SIZE + C_SIZE) * sizeof(float));
    if (!scratch.data)
        return false;
    p.scratch = scratch.data;
    attn__parallel_items(threads, items, product_block, &p);
    attn__scratch_release(scratch);
    return true;
}
