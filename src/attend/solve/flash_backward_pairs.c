/* SPDX-License-Identifier: MIT
 *
 * flash_backward_pairs.c - the products of a tile on pairs of bf16 numbers (kernels/gemm_tile/gemm_tile_bf16.h).
 *
 * Operands are pairs along the dimension that a product sums over: channels for S and dP, queries for dV and dK, keys
 * for dQ.
 */
#include "attend/solve/flash_backward.h"

#include "base/arena.h"
#include "base/integers.h"

enum { PAIR = 2 };

static bool adjacent(const attn__canonical *canonical)
{
    return attn__offsets_adjacent(&canonical->contract, ATTN__STRIDE(dim.q)) &&
           attn__offsets_adjacent(&canonical->contract, ATTN__STRIDE(dim.k)) &&
           attn__offsets_adjacent(&canonical->value, ATTN__STRIDE(dim.v)) &&
           attn__offsets_adjacent(&canonical->value, ATTN__STRIDE(dim.dout));
}

void attn__flash_backward_pairs_choose(attn__flash_backward_plan *p, const attn__canonical *canonical)
{
    bool fits = p->bf16 && !p->amx && adjacent(canonical) && attn__cpu_has(ATTN__CPU_BF16_DOT);
    p->pairs = fits ? attn__gemm_tile_bf16_for(canonical->isa) : NULL;
}

/* Pairs of a row's channels, in whole vectors. */
static int64_t row_of_pairs(const attn__flash_backward_plan *p, int64_t channels)
{
    return attn__round_up(attn__pieces(channels, PAIR), p->tile->lanes);
}

static uint32_t *take(attn__arena *arena, int64_t n)
{
    return attn__arena_take(arena, n, sizeof(uint32_t));
}

void attn__flash_backward_pairs_place(const attn__flash_backward_plan *p, attn__arena *arena,
                                      attn__flash_backward_pairs *x)
{
    int64_t rows = attn__pieces(p->tile_q, PAIR), strips = p->block_k / p->strip;
    x->kt = take(arena, strips * attn__pieces(p->d, PAIR) * p->strip);
    x->vt = take(arena, strips * attn__pieces(p->dv, PAIR) * p->strip);
    x->k = take(arena, attn__pieces(p->block_k, PAIR) * p->ldk);
    x->q = take(arena, p->tile_q * row_of_pairs(p, p->d));
    x->dout = take(arena, p->tile_q * row_of_pairs(p, p->dv));
    x->q_rows = take(arena, rows * p->ldk);
    x->dout_rows = take(arena, rows * p->ldv);
    x->across = take(arena, rows * p->strip);
    x->along = attn__arena_take(arena, p->tile_q * p->strip, sizeof *x->along);
}

/* ------------------------------------------------------------------------------------------------- packing */

/* The block's keys as pairs of channels, transposed: [strips][pairs][strip]. */
static void transpose(attn__flash_backward_run *run, const void *data, const int64_t *at, int64_t channels,
                      float *strip, uint32_t *to)
{
    const attn__flash_backward_plan *plan = run->plan;
    for (int64_t s = 0; s < run->block_n; s += plan->strip, to += attn__pieces(channels, PAIR) * plan->strip) {
        int64_t keys = attn__least(plan->strip, run->block_n - s);
        attn__lane_view view = {(void *)(uintptr_t)data, ATTN_BF16, at + s, NULL, channels, keys};
        plan->lanes->gather(&view, strip, plan->strip, 1.0f); /* exact: rounding them to bf16 again changes nothing */
        plan->pairs->round_rows(strip, channels, plan->strip, to);
    }
}

void attn__flash_backward_pairs_keys(attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__flash_backward_scratch *m = &run->m;
    transpose(run, run->arrays->k, m->key_at.k, plan->d, m->keys.kt, m->pairs.kt);
    transpose(run, run->arrays->v, m->key_at.v, plan->dv, m->keys.vt, m->pairs.vt);
    run->keys_finite =
        plan->pairs->pair_rows(run->arrays->k, m->key_at.k, run->block_n, plan->d, m->pairs.k, plan->ldk);
    /* The products read values only transposed: their pairs of rows are made to find infinity and NaN. */
    uint32_t *unread = (uint32_t *)(void *)m->keys.v;
    run->keys_finite = plan->pairs->pair_rows(run->arrays->v, m->key_at.v, run->block_n, plan->dv, unread, plan->ldv) &&
                       run->keys_finite;
}

void attn__flash_backward_pairs_queries(attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__gemm_tile_bf16_kernel *pairs = plan->pairs;
    const attn__flash_backward_scratch *m = &run->m;
    const uint16_t *q = run->arrays->q, *dout = run->arrays->dout;
    pairs->copy_rows(q, m->query_at.q, run->tile_n, plan->d, m->pairs.q, row_of_pairs(plan, plan->d));
    pairs->copy_rows(dout, m->query_at.dout, run->tile_n, plan->dv, m->pairs.dout, row_of_pairs(plan, plan->dv));
    run->queries_finite = pairs->pair_rows(q, m->query_at.q, run->tile_n, plan->d, m->pairs.q_rows, plan->ldk);
    run->queries_finite =
        pairs->pair_rows(dout, m->query_at.dout, run->tile_n, plan->dv, m->pairs.dout_rows, plan->ldv) &&
        run->queries_finite;
}

/* ------------------------------------------------------------------------------------------------ products */

/* S = Q K^T and dP = dO V^T of some rows of the tile. */
static void scores(const attn__flash_backward_run *run, const attn__softmax_backward_args *t, int64_t first,
                   int64_t row)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__flash_backward_pairs *x = &run->m.pairs;
    int64_t k = attn__pieces(plan->d, PAIR), ldq = row_of_pairs(plan, plan->d);
    attn__gemm_tile_bf16_args g = {.m = t->rows,
                                   .n = attn__round_up(t->keys, plan->tile->lanes),
                                   .k = k,
                                   .a = x->q + row * ldq,
                                   .am = ldq,
                                   .ak = 1,
                                   .b = x->kt + first * k,
                                   .ldb = plan->strip,
                                   .c = t->s,
                                   .ldc = plan->strip,
                                   .factor = plan->score_scale};
    plan->pairs->run(&g);
    if (!t->dp)
        return;
    g.k = attn__pieces(plan->dv, PAIR);
    g.am = row_of_pairs(plan, plan->dv);
    g.a = x->dout + row * g.am;
    g.b = x->vt + first * g.k;
    g.c = t->dp;
    g.factor = 1.0f;
    plan->pairs->run(&g);
}

/* C += from^T B, which is a sum over the rows; g has B and C. */
static void add_transposed(const attn__flash_backward_run *run, const attn__softmax_backward_args *t, const float *from,
                           attn__gemm_tile_bf16_args g)
{
    const attn__flash_backward_plan *plan = run->plan;
    plan->pairs->round_rows(from, t->rows, plan->strip, run->m.pairs.across);
    g.m = t->keys;
    g.k = attn__pieces(t->rows, PAIR);
    g.a = run->m.pairs.across;
    g.am = 1;
    g.ak = plan->strip;
    g.factor = 1.0f;
    g.accumulate = true;
    plan->pairs->run(&g);
}

/* dV += P^T dO, dK += dS^T Q. */
static void key_gradients(const attn__flash_backward_run *run, const attn__softmax_backward_args *t, int64_t first,
                          int64_t row)
{
    int64_t ldk = run->plan->ldk, ldv = run->plan->ldv;
    attn__gemm_tile_bf16_args dv = {.n = run->plan->dvp,
                                    .b = run->m.pairs.dout_rows + row / PAIR * ldv,
                                    .ldb = ldv,
                                    .c = run->m.keys.dv + first * ldv,
                                    .ldc = ldv};
    attn__gemm_tile_bf16_args dk = {.n = run->plan->dp,
                                    .b = run->m.pairs.q_rows + row / PAIR * ldk,
                                    .ldb = ldk,
                                    .c = run->m.keys.dk + first * ldk,
                                    .ldc = ldk};
    if (run->want & ATTN__FLASH_BACKWARD_V)
        add_transposed(run, t, t->s, dv);
    if (run->want & ATTN__FLASH_BACKWARD_K)
        add_transposed(run, t, t->dp, dk);
}

/* dQ += dS K; columns behind the keys are zero up to whole vectors. */
static void query_gradients(const attn__flash_backward_run *run, const attn__softmax_backward_args *t, int64_t first,
                            int64_t row)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__flash_backward_pairs *x = &run->m.pairs;
    int64_t columns = attn__round_up(t->keys, plan->tile->lanes);
    for (int64_t r = 0; r < t->rows; r++)
        plan->backward->store_bf16(x->along + r * plan->strip, t->dp + r * plan->strip, columns, 1.0f, false);
    plan->pairs->run(&(attn__gemm_tile_bf16_args){.m = t->rows,
                                                  .n = plan->dp,
                                                  .k = attn__pieces(t->keys, PAIR),
                                                  .a = (const uint32_t *)(const void *)x->along,
                                                  .am = plan->strip / PAIR,
                                                  .ak = 1,
                                                  .b = x->k + first / PAIR * plan->ldk,
                                                  .ldb = plan->ldk,
                                                  .c = run->dq + row * plan->ldk,
                                                  .ldc = plan->ldk,
                                                  .factor = 1.0f,
                                                  .accumulate = true});
}

void attn__flash_backward_pairs_strip(attn__flash_backward_run *run, attn__softmax_backward_args *t, int64_t first,
                                      int64_t row)
{
    scores(run, t, first, row);
    run->plan->backward->weights(t);
    key_gradients(run, t, first, row);
    if (run->want & ATTN__FLASH_BACKWARD_Q)
        query_gradients(run, t, first, row);
}
