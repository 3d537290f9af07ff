/* SPDX-License-Identifier: MIT
 * The operands of gemm_parts.h as tiles of parts. */
#include "base/parallel.h"
#include "tensor/gemm_parts.h"
#include "tensor/gemm_parts_work.h"

enum { PACKED_AT_ONCE = 128 }; /* columns that one thread packs at a time */

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

void attn__gemm_parts_turn_a(const attn__parts_product *p, int64_t at, int64_t height, int64_t k0, int64_t depth,
                             const attn__parts_side *to)
{
    const attn__gemm_args *g = p->g;
    const float *a = (const float *)g->a + k0 * g->lda + at;
    attn__parts_rows rows = {a, ATTN_F32, NULL, g->lda, depth, height, 1.0f, PARTS};
    p->kernel->split_pairs(&rows, to);
    p->kernel->turn(to->data, attn__pieces(height, SIDE) * to->block / ATTN__PARTS_TILE);
}

static void pack_item(void *user, int64_t item, int thread)
{
    const attn__parts_product *p = user;
    attn__parts_side to = p->b;
    int64_t at = item * PACKED_AT_ONCE;
    (void)thread;
    to.data += at / SIDE * to.block;
    p->odd_b[item] =
        !split_b(p->kernel, p->g, at, attn__least(p->g->n - at, PACKED_AT_ONCE), p->begin, p->end - p->begin, &to);
}

int64_t attn__gemm_parts_pieces_of_b(int64_t n)
{
    return attn__pieces(n, PACKED_AT_ONCE);
}

bool attn__gemm_parts_pack_b(int threads, attn__parts_product *p)
{
    int64_t items = attn__gemm_parts_pieces_of_b(p->g->n);
    attn__parallel_items(threads, items, pack_item, p);
    for (int64_t i = 0; i < items; i++)
        if (p->odd_b[i])
            return false;
    return true;
}

attn_status attn__gemm_parts_pack(attn_tape *tape, const float *b, int64_t ldb, int64_t n, int64_t k,
                                  attn__packed *packed)
{
    attn__gemm_args args = {.dtype = ATTN_F32, .transpose_b = true, .n = n, .k = k, .b = b, .ldb = ldb};
    attn__parts_product p = {.g = &args, .kernel = attn__parts_for(tape->context->isa), .end = k};
    *packed = (attn__packed){0};
    if (!p.kernel || n == 0 || k == 0)
        return ATTN_UNSUPPORTED;
    int64_t steps = attn__pieces(k, ATTN__PARTS_DEPTH);
    size_t size = (size_t)(attn__pieces(n, SIDE) * steps * CELL) * sizeof(uint16_t);
    attn__hold hold = attn__scratch(tape, size + (size_t)attn__gemm_parts_pieces_of_b(n));
    if (!hold.data)
        return ATTN_MEMORY;
    *packed = (attn__packed){ATTN_F32, n, k, hold, .parts = true};
    p.b = attn__parts_packed(hold.data, steps, PARTS);
    p.odd_b = (bool *)hold.data + size;
    if (attn__gemm_parts_pack_b(tape->context->threads, &p))
        return ATTN_OK;
    attn__gemm_unpack(packed);
    return ATTN_UNSUPPORTED;
}
