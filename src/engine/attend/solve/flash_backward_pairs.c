/* SPDX-License-Identifier: MIT
 *
 * flash_backward_pairs.c - products of the backward pass on pairs of bf16 numbers.
 */
#include "attend/solve/flash_backward.h"

#include "base/integers.h"

enum { PAIR = 2 };

static int64_t row_of_pairs(const attn__flash_backward_plan *p, int64_t channels)
{
    return attn__round_up(attn__ceil_div(channels, PAIR), p->tile->lanes);
}

static uint32_t *take_pairs(attn__arena *arena, int64_t n)
{
    return attn__arena_take(arena, n, sizeof(uint32_t));
}

static void place(const attn__flash_backward_plan *p, attn__arena *arena, attn__flash_backward_scratch *m)
{
    attn__flash_backward_pairs *x = &m->pairs;
    int64_t rows = attn__ceil_div(p->tile_q, PAIR), strips = p->block_k / p->strip;
    x->kt = take_pairs(arena, strips * attn__ceil_div(p->d, PAIR) * p->strip);
    x->vt = take_pairs(arena, strips * attn__ceil_div(p->dv, PAIR) * p->strip);
    x->k = take_pairs(arena, attn__ceil_div(p->block_k, PAIR) * p->ldk);
    x->q = take_pairs(arena, p->tile_q * row_of_pairs(p, p->d));
    x->dout = take_pairs(arena, p->tile_q * row_of_pairs(p, p->dv));
    x->q_rows = take_pairs(arena, rows * p->ldk);
    x->dout_rows = take_pairs(arena, rows * p->ldv);
    x->across = take_pairs(arena, rows * p->strip);
    x->along = attn__arena_take(arena, p->tile_q * p->strip, sizeof *x->along);
}

/* --------------------------------------------------------------------------------------------------------- packing */

/* Packs an operand of the block's keys as pairs of channels and transposes it: [strips][pairs][strip]. */
static void transpose_pairs(attn__flash_backward_run *run, attn__operand op, int64_t channels, float *scratch,
                            uint32_t *to)
{
    const attn__flash_backward_plan *plan = run->plan;
    for (int64_t s = 0; s < run->block_n; s += plan->strip, to += attn__ceil_div(channels, PAIR) * plan->strip) {
        attn__flash_backward_transpose(run, op, s, attn__min(plan->strip, run->block_n - s), 1.0f, scratch);
        plan->pairs->round_rows(scratch, channels, plan->strip, to); /* exact, because the numbers are bf16 */
    }
}

/* Packs rows of an operand as pairs of rows. Returns false if a number is not finite. */
static bool pair_rows(const attn__flash_backward_run *run, attn__operand op, int64_t ld, uint32_t *to)
{
    attn__rows x = attn__flash_backward_rows(run, op);
    return run->plan->pairs->pair_rows(x.data, x.at, x.rows, x.n, to, ld);
}

static void pack_key_pairs(attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__flash_backward_scratch *m = &run->m;
    transpose_pairs(run, ATTN__OP_K, plan->d, m->keys.kt, m->pairs.kt);
    transpose_pairs(run, ATTN__OP_V, plan->dv, m->keys.vt, m->pairs.vt);
    run->keys.finite = pair_rows(run, ATTN__OP_K, plan->ldk, m->pairs.k);
    /* Products do not read values as pairs of rows. The pairs are computed only to find infinity and NaN. */
    run->keys.finite = pair_rows(run, ATTN__OP_V, plan->ldv, (void *)m->keys.v) && run->keys.finite;
}

static void pack_query_pairs(attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__flash_backward_pairs *m = &run->m.pairs;
    const attn__rows q = attn__flash_backward_rows(run, ATTN__OP_Q),
                     dout = attn__flash_backward_rows(run, ATTN__OP_DOUT);
    plan->pairs->copy_rows(q.data, q.at, q.rows, q.n, m->q, row_of_pairs(plan, q.n));
    plan->pairs->copy_rows(dout.data, dout.at, dout.rows, dout.n, m->dout, row_of_pairs(plan, dout.n));
    run->queries.finite = pair_rows(run, ATTN__OP_Q, plan->ldk, m->q_rows);
    run->queries.finite = pair_rows(run, ATTN__OP_DOUT, plan->ldv, m->dout_rows) && run->queries.finite;
}

/* -------------------------------------------------------------------------------------------------------- products */

/* Computes S = Q K^T and dP = dO V^T for the rows of the strip. */
static void pair_scores(const attn__flash_backward_strip *x)
{
    const attn__flash_backward_plan *plan = x->run->plan;
    const attn__flash_backward_pairs *y = &x->run->m.pairs;
    for (int value = 0; value < (x->t.ds ? 2 : 1); value++) {
        int64_t channels = value ? plan->dv : plan->d, k = attn__ceil_div(channels, PAIR);
        int64_t ld = row_of_pairs(plan, channels);
        plan->pairs->run(&(attn__gemm_tile_bf16_args){.m = x->t.nrows,
                                                      .n = attn__round_up(x->t.nkeys, plan->tile->lanes),
                                                      .k = k,
                                                      .a = (value ? y->dout : y->q) + x->t.row * ld,
                                                      .am = ld,
                                                      .ak = 1,
                                                      .b = (value ? y->vt : y->kt) + x->t.key * k,
                                                      .ldb = plan->strip,
                                                      .c = value ? x->t.ds : x->t.s,
                                                      .ldc = plan->strip,
                                                      .factor = value ? 1.0f : plan->score_scale});
    }
}

/* Adds P^T dO to dV, and dS^T Q to dK. */
static void pair_key_gradients(const attn__flash_backward_strip *x)
{
    const attn__flash_backward_plan *plan = x->run->plan;
    const attn__flash_backward_pairs *m = &x->run->m.pairs;
    for (int value = 1; value >= 0; value--) {
        const attn__flash_backward_key_product y = attn__flash_backward_key_product_of(x, value);
        if (!y.want)
            continue;
        plan->pairs->round_rows(y.weights, x->t.nrows, plan->strip, m->across);
        plan->pairs->run(&(attn__gemm_tile_bf16_args){.m = x->t.nkeys,
                                                      .n = y.padded,
                                                      .k = attn__ceil_div(x->t.nrows, PAIR),
                                                      .a = m->across,
                                                      .am = 1,
                                                      .ak = plan->strip,
                                                      .b = (value ? m->dout_rows : m->q_rows) + x->t.row / PAIR * y.ld,
                                                      .ldb = y.ld,
                                                      .c = y.sums + x->t.key * y.ld,
                                                      .ldc = y.ld,
                                                      .factor = 1.0f,
                                                      .accumulate = true});
    }
}

/* Adds dS K to dQ. dS has zeros after the last key, up to whole vectors. */
static void pair_query_gradients(const attn__flash_backward_strip *x)
{
    const attn__flash_backward_plan *plan = x->run->plan;
    const attn__flash_backward_pairs *y = &x->run->m.pairs;
    int64_t columns = attn__round_up(x->t.nkeys, plan->tile->lanes);
    for (int64_t r = 0; r < x->t.nrows; r++)
        plan->tiles.backward->store_bf16(y->along + r * plan->strip, x->t.ds + r * plan->strip, columns, 1.0f, false);
    plan->pairs->run(&(attn__gemm_tile_bf16_args){.m = x->t.nrows,
                                                  .n = plan->dp,
                                                  .k = attn__ceil_div(x->t.nkeys, PAIR),
                                                  .a = (const uint32_t *)(const void *)y->along,
                                                  .am = plan->strip / PAIR,
                                                  .ak = 1,
                                                  .b = y->k + x->t.key / PAIR * plan->ldk,
                                                  .ldb = plan->ldk,
                                                  .c = x->run->dq + x->t.row * plan->ldk,
                                                  .ldc = plan->ldk,
                                                  .factor = 1.0f,
                                                  .accumulate = true});
}

/* Runs a strip whose operands are finite. */
static unsigned run_pairs(attn__flash_backward_strip *x)
{
    if (x->t.alive)
        return x->run->want;
    pair_scores(x);
    attn__tile_weights(&x->t);
    pair_key_gradients(x);
    if (x->run->want & ATTN_WANT_DQ)
        pair_query_gradients(x);
    return 0;
}

static void pack(attn__flash_backward_run *run, bool keys)
{
    (keys ? pack_key_pairs : pack_query_pairs)(run);
}

static bool choose(attn__flash_backward_plan *plan, const attn__canonical *canonical)
{
    static const attn__operand ops[] = {ATTN__OP_Q, ATTN__OP_K, ATTN__OP_V, ATTN__OP_DOUT};
    if (plan->bf16 && attn__channels_adjacent(canonical, ops, 4) && attn__cpu_has(ATTN__CPU_BF16_DOT))
        plan->pairs = attn__gemm_tile_bf16_for(canonical->isa);
    return plan->pairs;
}

const attn__flash_backward_products attn__flash_backward_by_pairs = {.choose = choose,
                                                                     .place = place,
                                                                     .pack = pack,
                                                                     .run = run_pairs,
                                                                     .row_step = PAIR,
                                                                     .apart = true,
                                                                     .prefetches = true};
