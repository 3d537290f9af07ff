/* SPDX-License-Identifier: MIT
 *
 * flash_backward_amx.c - the tile products on AMX; flash_backward.h says which.
 */
#include "attend/solve/flash_backward.h"

#include "base/arena.h"
#include "base/integers.h"
#include "kernels/bf16x3/bf16x3_backward.h"

#include <string.h>

enum { TILE_Q = 128, STRIP = 64 };

/* Small heads leave too much of each tile empty, and in small problems splitting numbers, three parts above all, takes
 * longer than products of them save (docs/performance.md). */
static bool is_worth_it(const attn__flash_backward_plan *p)
{
    int64_t channels = p->bf16 ? 32 : 48, rows = p->bf16 ? 48 : 128;
    return p->d >= channels && p->dv >= channels && p->nq >= rows && p->nk >= rows;
}

/* Tiles of the queries, strips and blocks of the keys. */
void attn__flash_backward_amx_choose(attn__flash_backward_plan *p, const attn__canonical *canonical)
{
    p->amx = attn__bf16x3_for(canonical->isa);
    p->parts = p->bf16 ? 1 : ATTN__BF16X3_F32;
    if (!p->amx || !is_worth_it(p)) {
        p->amx = NULL;
        return;
    }
    p->tile_q = attn__least(TILE_Q, attn__round_up(p->nq, ATTN__BF16X3_DEPTH));
    p->strip = attn__least(STRIP, attn__round_up(p->nk, ATTN__BF16X3_DEPTH));
    int64_t bytes = 2 * p->parts * (2 * p->dp + p->dvp) + (int64_t)sizeof(float) * (p->dp + p->dvp);
    int64_t strips = (int64_t)canonical->caches.l2 / 2 / (bytes * p->strip);
    p->block_k = attn__least(strips > 1 ? strips : 1, attn__pieces(p->nk, p->strip)) * p->strip;
}

static attn__bf16x3_side take_side(attn__arena *s, int parts, int64_t blocks, int64_t steps)
{
    attn__bf16x3_side side = attn__bf16x3_packed(NULL, steps, parts);
    side.data = attn__arena_take(s, blocks * side.block, sizeof *side.data);
    return side;
}

size_t attn__flash_backward_amx_place(const attn__flash_backward_plan *p, void *memory, attn__flash_backward_amx *x)
{
    const int64_t side = ATTN__BF16X3_SIDE, depth = ATTN__BF16X3_DEPTH;
    attn__arena s = {memory, 0};
    x->p = take_side(&s, p->parts, p->strip / side, p->tile_q / depth);
    x->across = take_side(&s, p->parts, p->strip / side, p->tile_q / depth);
    x->along = take_side(&s, p->parts, p->tile_q / side, p->strip / depth);
    x->q = take_side(&s, p->parts, p->tile_q / side, attn__pieces(p->d, depth));
    x->dout = take_side(&s, p->parts, p->tile_q / side, attn__pieces(p->dv, depth));
    x->q_across = take_side(&s, p->parts, p->dp / side, p->tile_q / depth);
    x->dout_across = take_side(&s, p->parts, p->dvp / side, p->tile_q / depth);
    x->kt = take_side(&s, p->parts, p->block_k / side, attn__pieces(p->d, depth));
    x->vt = take_side(&s, p->parts, p->block_k / side, attn__pieces(p->dv, depth));
    x->k = take_side(&s, p->parts, p->dp / side, p->block_k / depth);
    x->row = attn__arena_take(&s, attn__most(p->block_k, p->tile_q), sizeof *x->row);
    x->ones = attn__arena_take(&s, p->ld_keys, sizeof *x->ones);
    return s.used;
}

/* ------------------------------------------------------------------------------------------------- packing */

/* Rows of the caller's, or copies of them if their channels are not neighbours. */
static attn__bf16x3_pack rows_of(const attn__flash_backward_run *run, const void *data, const int64_t *at, int64_t rows,
                                 int64_t columns)
{
    const attn__flash_backward_plan *plan = run->plan;
    return (attn__bf16x3_pack){.data = data,
                               .dtype = plan->bf16 ? ATTN_BF16 : ATTN_F32,
                               .parts = plan->parts,
                               .row_at = at,
                               .rows = rows,
                               .columns = columns};
}

static void take_copies(attn__flash_backward_run *run, attn__bf16x3_pack *rows, const float *copies, int64_t ld)
{
    int64_t *at = run->m.parts.row;
    for (int64_t i = 0; i < rows->rows; i++)
        at[i] = i * ld;
    rows->data = copies;
    rows->dtype = ATTN_F32;
    rows->row_at = at;
}

static bool pack(const attn__bf16x3_pack *rows)
{
    return attn__bf16x3_pack_rows(rows, 0, attn__round_up(rows->rows, ATTN__BF16X3_DEPTH));
}

/* Packed blocks to what stands at the other side of a product. */
static void transpose(const attn__flash_backward_plan *plan, const attn__bf16x3_side *side, int64_t rows)
{
    plan->amx->transpose(side->data, attn__pieces(rows, ATTN__BF16X3_SIDE) * side->block / ATTN__BF16X3_TILE);
}

/* The rows of keys and values, split; clears dK^T and dV^T. */
void attn__flash_backward_amx_keys(attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    attn__flash_backward_scratch *m = &run->m;
    attn__bf16x3_pack k = rows_of(run, run->arrays->k, m->key_at.k, run->block_n, plan->d);
    attn__bf16x3_pack v = rows_of(run, run->arrays->v, m->key_at.v, run->block_n, plan->dv);
    run->keys_copied = false;
    run->keys_finite = true;
    k.keyed = true;
    k.along = m->parts.kt;
    k.across = m->parts.k;
    v.along = m->parts.vt;
    if (plan->channels.k || plan->channels.v)
        attn__flash_backward_copy_keys(run);
    if (plan->channels.k)
        take_copies(run, &k, m->keys.k, plan->dp);
    run->keys_split = pack(&k);
    if (plan->channels.v)
        take_copies(run, &v, m->keys.v, plan->dvp);
    run->keys_split = pack(&v) && run->keys_split;
    if (!run->keys_split)
        attn__flash_backward_copy_keys(run);
    transpose(plan, &k.along, k.rows);
    transpose(plan, &v.along, v.rows);
    memset(m->keys.dk, 0, (size_t)(plan->ld_keys * plan->dp) * sizeof(float));
    memset(m->keys.dv, 0, (size_t)(plan->ld_keys * plan->dvp) * sizeof(float));
}

void attn__flash_backward_amx_queries(attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    attn__flash_backward_scratch *m = &run->m;
    attn__bf16x3_pack q = rows_of(run, run->arrays->q, m->query_at.q, run->tile_n, plan->d);
    attn__bf16x3_pack dout = rows_of(run, run->arrays->dout, m->query_at.dout, run->tile_n, plan->dv);
    run->queries_copied = false;
    run->queries_finite = true;
    q.along = m->parts.q;
    q.across = m->parts.q_across;
    dout.along = m->parts.dout;
    dout.across = m->parts.dout_across;
    if (plan->channels.q || plan->channels.dout)
        attn__flash_backward_copy_queries(run);
    if (plan->channels.q)
        take_copies(run, &q, m->q, plan->dp);
    run->queries_split = pack(&q);
    if (plan->channels.dout)
        take_copies(run, &dout, m->dout, plan->dvp);
    run->queries_split = pack(&dout) && run->queries_split;
    if (!run->queries_split)
        attn__flash_backward_copy_queries(run);
    transpose(plan, &q.across, q.columns);
    transpose(plan, &dout.across, dout.columns);
}

static void transpose_back(const attn__flash_backward_run *run, const float *sums, int64_t channels, float *rows,
                           int64_t ld, int64_t n)
{
    attn__flash_backward_amx parts = run->m.parts;
    for (int64_t i = 0; i < n; i++)
        parts.row[i] = i * ld;
    attn__lane_view view = {rows, ATTN_F32, parts.row, NULL, channels, n};
    run->plan->lanes->scatter(&view, sums, run->plan->ld_keys, parts.ones);
}

void attn__flash_backward_amx_rows(const attn__flash_backward_run *run, int64_t n)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__flash_backward_scratch *m = &run->m;
    if (n == 0)
        return;
    for (int64_t i = 0; i < plan->ld_keys; i++)
        m->parts.ones[i] = 1.0f;
    transpose_back(run, m->keys.dk, plan->d, m->keys.dk_rows, plan->dp, n);
    transpose_back(run, m->keys.dv, plan->dv, m->keys.dv_rows, plan->dvp, n);
}

/* Sums that are whole, straight to where the caller wants them: the lines of a square of rows are asked for while the
 * one before is turned. */
static void put_transposed(const attn__flash_backward_run *run, const float *sums, const attn__flash_backward_rows *to,
                           float scale)
{
    const attn__flash_backward_plan *plan = run->plan;
    void *data = (void *)(uintptr_t)to->data;
    for (int64_t i = 0; i < ATTN__BF16X3_SIDE; i++)
        run->m.parts.ones[i] = scale;
    for (int64_t i = 0; i < to->rows; i += ATTN__BF16X3_SIDE) {
        int64_t rows = attn__least(to->rows - i, ATTN__BF16X3_SIDE);
        for (int64_t r = i + rows; r < i + rows + ATTN__BF16X3_SIDE; r++)
            attn__flash_backward_prefetch_row(plan, to, r);
        attn__lane_view view = {data, plan->bf16 ? ATTN_BF16 : ATTN_F32, to->at + i, NULL, to->n, rows};
        plan->lanes->scatter(&view, sums + i, plan->ld_keys, run->m.parts.ones);
    }
}

bool attn__flash_backward_amx_store(const attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn_arrays *x = run->arrays;
    const attn_dim *at = &run->item.at;
    if (!plan->store_kv || !run->first || plan->channels.dk || plan->channels.dv)
        return false;
    const attn__flash_backward_scratch *m = &run->m;
    const attn__group *key = &run->canonical->key;
    attn__flash_backward_rows dk = {x->dk, m->key_at.dk, run->block_n, NULL, plan->d};
    attn__flash_backward_rows dv = {x->dv, m->key_at.dv, run->block_n, NULL, plan->dv};
    if (run->want & ATTN__FLASH_BACKWARD_K) {
        attn__flash_backward_walk(key, ATTN__STRIDE(dim.dk), run->block, run->block_n, at->dk, m->key_at.dk);
        put_transposed(run, m->keys.dk, &dk, (float)run->canonical->problem.scale);
    }
    if (run->want & ATTN__FLASH_BACKWARD_V) {
        attn__flash_backward_walk(key, ATTN__STRIDE(dim.dv), run->block, run->block_n, at->dv, m->key_at.dv);
        put_transposed(run, m->keys.dv, &dv, 1.0f);
    }
    return true;
}

/* ------------------------------------------------------------------------------------------------ products */

/* Sides from this block or step of theirs on. */
static attn__bf16x3_side from_block(attn__bf16x3_side side, int64_t block)
{
    side.data += block * side.block;
    return side;
}

static attn__bf16x3_side from_step(attn__bf16x3_side side, int64_t step)
{
    side.data += step * side.step;
    return side;
}

/* A strip in progress: its weights' arguments, and where its rows and keys lie in what is packed. */
typedef struct strip {
    attn__flash_backward_run *run;
    attn__softmax_backward_args *t;
    int64_t first, row;
    attn__bf16x3_weights weights;
} strip;

static void multiply(const strip *x, const attn__bf16x3_args *args, attn__interleaved *interleaved)
{
    x->run->plan->amx->run_interleaved(args, interleaved);
}

/* S = Q K^T, ... */
static void scores(const strip *x, attn__interleaved *interleaved)
{
    const attn__flash_backward_plan *plan = x->run->plan;
    const attn__flash_backward_amx *m = &x->run->m.parts;
    attn__bf16x3_args s = {.m = attn__pieces(x->t->rows, ATTN__BF16X3_SIDE),
                           .n = attn__pieces(x->t->keys, ATTN__BF16X3_SIDE),
                           .k = attn__pieces(plan->d, ATTN__BF16X3_DEPTH),
                           .parts = plan->parts,
                           .a = from_block(m->q, x->row / ATTN__BF16X3_SIDE),
                           .b = from_block(m->kt, x->first / ATTN__BF16X3_SIDE),
                           .c = x->t->s,
                           .ldc = plan->strip};
    multiply(x, &s, interleaved);
}

/* ... dP = dO V^T */
static void value_scores(const strip *x, attn__interleaved *interleaved)
{
    const attn__flash_backward_plan *plan = x->run->plan;
    const attn__flash_backward_amx *m = &x->run->m.parts;
    attn__bf16x3_args s = {.m = attn__pieces(x->t->rows, ATTN__BF16X3_SIDE),
                           .n = attn__pieces(x->t->keys, ATTN__BF16X3_SIDE),
                           .k = attn__pieces(plan->dv, ATTN__BF16X3_DEPTH),
                           .parts = plan->parts,
                           .a = from_block(m->dout, x->row / ATTN__BF16X3_SIDE),
                           .b = from_block(m->vt, x->first / ATTN__BF16X3_SIDE),
                           .c = x->t->dp,
                           .ldc = plan->strip};
    multiply(x, &s, interleaved);
}

/* dV^T += dO^T P or dK^T += Q^T dS. */
static void across(const strip *x, const attn__bf16x3_side *a, int64_t channels, const attn__bf16x3_side *b, float *c,
                   attn__interleaved *interleaved)
{
    const attn__flash_backward_plan *plan = x->run->plan;
    attn__bf16x3_args g = {.m = channels / ATTN__BF16X3_SIDE,
                           .n = attn__pieces(x->t->keys, ATTN__BF16X3_SIDE),
                           .k = attn__pieces(x->t->rows, ATTN__BF16X3_DEPTH),
                           .parts = plan->parts,
                           .a = from_step(*a, x->row / ATTN__BF16X3_DEPTH),
                           .b = *b,
                           .c = c + x->first,
                           .ldc = plan->ld_keys,
                           .accumulate = true};
    multiply(x, &g, interleaved);
}

/* dQ += dS K. */
static void along(const strip *x, attn__interleaved *interleaved)
{
    const attn__flash_backward_plan *plan = x->run->plan;
    const attn__flash_backward_amx *m = &x->run->m.parts;
    attn__bf16x3_args g = {.m = attn__pieces(x->t->rows, ATTN__BF16X3_SIDE),
                           .n = plan->dp / ATTN__BF16X3_SIDE,
                           .k = attn__pieces(x->t->keys, ATTN__BF16X3_DEPTH),
                           .parts = plan->parts,
                           .a = m->along,
                           .b = from_step(m->k, x->first / ATTN__BF16X3_DEPTH),
                           .c = x->run->dq + x->row * plan->dp,
                           .ldc = plan->dp,
                           .accumulate = true};
    multiply(x, &g, interleaved);
}

/* Weights of their own kind go through memory once more. */
static void weigh_apart(const strip *x)
{
    const attn__flash_backward_plan *plan = x->run->plan;
    attn__softmax_backward_args *t = x->t;
    for (int64_t r = 0; r < t->rows; r++)
        plan->backward->store(t->s + r * t->ld, t->s + r * t->ld, t->keys, plan->score_scale, false);
    plan->backward->weights(t);
}

/* S and dP; then P, its weights beside the product dP, or all of one part. */
static bool weigh(const strip *x)
{
    attn__bf16x3_softmax_backward w;
    bool fused = x->weights.lse, three = x->weights.parts > 1;
    scores(x, NULL);
    attn__bf16x3_begin_p(&w, &x->weights);
    if (x->t->dp)
        value_scores(x, fused && three ? &w.interleaved : NULL);
    if (!fused)
        weigh_apart(x);
    return three ? attn__bf16x3_finish(&w) : attn__bf16x3_weigh(&x->weights);
}

/* dV beside dS; false if dS is of no use. */
static bool gradients_of_weights(const strip *x)
{
    attn__bf16x3_softmax_backward w;
    const attn__flash_backward_run *run = x->run;
    const attn__flash_backward_amx *m = &run->m.parts;
    bool wanted = x->t->dp && x->weights.parts > 1;
    if (wanted)
        attn__bf16x3_begin_ds(&w, &x->weights);
    if (run->want & ATTN__FLASH_BACKWARD_V)
        across(x, &m->dout_across, run->plan->dvp, &m->p, run->m.keys.dv, wanted ? &w.interleaved : NULL);
    return !wanted || attn__bf16x3_finish(&w);
}

static void gradients_of_scores(const strip *x)
{
    const attn__flash_backward_run *run = x->run;
    const attn__flash_backward_amx *m = &run->m.parts;
    if (run->want & ATTN__FLASH_BACKWARD_K)
        across(x, &m->q_across, run->plan->dp, &m->across, run->m.keys.dk, NULL);
    if (run->want & ATTN__FLASH_BACKWARD_Q)
        along(x, NULL);
}

unsigned attn__flash_backward_amx_strip(attn__flash_backward_run *run, attn__softmax_backward_args *t, int64_t first,
                                        int64_t row)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__flash_backward_amx *m = &run->m.parts;
    bool fused = run->plain && !(run->want & ATTN__FLASH_BACKWARD_BIAS);
    strip x = {run,
               t,
               first,
               row,
               {.rows = t->rows,
                .keys = t->keys,
                .ld = t->ld,
                .s = t->s,
                .dp = t->dp,
                .lse = fused ? t->lse : NULL,
                .delta = t->delta,
                .factor = plan->score_scale,
                .parts = plan->parts,
                .p = m->p,
                .across = m->across,
                .along = m->along}};
    if (!run->keys_split || !run->queries_split || !weigh(&x))
        return run->want;
    if (!gradients_of_weights(&x))
        return run->want & ~(unsigned)ATTN__FLASH_BACKWARD_V;
    gradients_of_scores(&x);
    return 0;
}
