/* SPDX-License-Identifier: MIT
 *
 * flash_backward_parts.c - the tile products in the matrix unit; flash_backward.h says which.
 */
#include "attend/flash_backward/flash_backward.h"

#include "attend/task/pile.h"
#include "base/integers.h"
#include "kernels/parts/parts_backward.h"

#include <string.h>

enum { TILE_Q = 128, STRIP = 128 };

/* Small heads leave too much of each tile empty, and in small problems splitting numbers, three parts above all, takes
 * longer than products of them save (docs/performance.md). */
static bool is_worth_it(const attn__back_plan *p)
{
    int64_t channels = p->bf16 ? 32 : 48, rows = p->bf16 ? 48 : 208;
    return p->d >= channels && p->dv >= channels && p->nq >= rows && p->nk >= rows;
}

/* Tiles of the queries, strips and blocks of the keys. */
void attn__back_parts_choose(attn__back_plan *p, const attn__task *task)
{
    p->matrix = attn__parts_for(task->isa);
    p->parts = p->bf16 ? 1 : ATTN__PARTS_F32;
    if (!p->matrix || !is_worth_it(p)) {
        p->matrix = NULL;
        return;
    }
    p->tile_q = attn__least(TILE_Q, attn__round_up(p->nq, ATTN__PARTS_DEPTH));
    p->strip = attn__least(STRIP, attn__round_up(p->nk, ATTN__PARTS_DEPTH));
    int64_t bytes = 2 * p->parts * (2 * p->dp + p->dvp) + (int64_t)sizeof(float) * (p->dp + p->dvp);
    int64_t strips = (int64_t)task->caches.l2 / 2 / (bytes * p->strip);
    p->block_k = attn__least(strips > 1 ? strips : 1, attn__pieces(p->nk, p->strip)) * p->strip;
}

static attn__parts_side take_side(attn__pile *s, int parts, int64_t blocks, int64_t steps)
{
    attn__parts_side side = attn__parts_packed(NULL, steps, parts);
    side.data = attn__pile_take(s, blocks * side.block, sizeof *side.data);
    return side;
}

size_t attn__back_parts_place(const attn__back_plan *p, void *memory, attn__back_parts *x)
{
    const int64_t side = ATTN__PARTS_SIDE, depth = ATTN__PARTS_DEPTH;
    attn__pile s = {memory, 0};
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
    x->row = attn__pile_take(&s, p->block_k, sizeof *x->row);
    x->ones = attn__pile_take(&s, p->ld_keys, sizeof *x->ones);
    return s.used;
}

/* ------------------------------------------------------------------------------------------------- packing */

static attn__parts_rows rows_of(const attn__back_plan *plan, const float *x, int64_t rows, int64_t columns, int64_t ld)
{
    return (attn__parts_rows){x, ATTN_F32, NULL, ld, rows, columns, 1.0f, plan->parts};
}

/* Rows to what stands at the other side of a product over their columns. */
static bool split_turned_rows(const attn__back_plan *plan, const attn__parts_rows *rows, const attn__parts_side *to)
{
    bool finite = plan->matrix->split_rows(rows, to);
    plan->matrix->turn(to->data, attn__pieces(rows->rows, ATTN__PARTS_SIDE) * to->block / ATTN__PARTS_TILE);
    return finite;
}

/* The packed rows of keys and values, split; clears dK^T and dV^T.  bf16 numbers are split without their factor, which
 * the weights then get. */
void attn__back_parts_keys(attn__back_run *run)
{
    const attn__back_plan *plan = run->plan;
    attn__back_scratch *m = &run->m;
    int64_t n = run->block_n, whole = attn__round_up(n, ATTN__PARTS_DEPTH);
    attn__parts_rows k = rows_of(plan, m->k, n, plan->d, plan->dp), v = rows_of(plan, m->v, n, plan->dv, plan->dvp);
    k.factor = plan->bf16 ? 1.0f : plan->score_scale;
    run->keys_split = split_turned_rows(plan, &k, &m->parts.kt);
    run->keys_split = split_turned_rows(plan, &v, &m->parts.vt) && run->keys_split;
    memset(m->k + n * plan->dp, 0, (size_t)((whole - n) * plan->dp) * sizeof(float));
    for (int64_t i = 0; i < whole; i++)
        m->parts.row[i] = (i - i % ATTN__PARTS_DEPTH + attn__parts_key(i % ATTN__PARTS_DEPTH)) * plan->dp;
    attn__parts_rows pairs = {m->k, ATTN_F32, m->parts.row, 0, whole, plan->d, 1.0f, plan->parts};
    run->keys_split = plan->matrix->split_pairs(&pairs, &m->parts.k) && run->keys_split;
    memset(m->dk, 0, (size_t)(plan->ld_keys * plan->dp) * sizeof(float));
    memset(m->dv, 0, (size_t)(plan->ld_keys * plan->dvp) * sizeof(float));
}

static void split_across(const attn__back_plan *plan, const attn__parts_rows *rows, const attn__parts_side *to)
{
    plan->matrix->split_pairs(rows, to);
    plan->matrix->turn(to->data, attn__pieces(rows->columns, ATTN__PARTS_SIDE) * to->block / ATTN__PARTS_TILE);
}

void attn__back_parts_queries(attn__back_run *run)
{
    const attn__back_plan *plan = run->plan;
    attn__back_scratch *m = &run->m;
    attn__parts_rows q = rows_of(plan, m->q, run->tile_n, plan->d, plan->dp),
                     dout = rows_of(plan, m->dout, run->tile_n, plan->dv, plan->dvp);
    run->queries_split = plan->matrix->split_rows(&q, &m->parts.q);
    run->queries_split = plan->matrix->split_rows(&dout, &m->parts.dout) && run->queries_split;
    split_across(plan, &q, &m->parts.q_across);
    split_across(plan, &dout, &m->parts.dout_across);
}

static void turn_back(const attn__back_run *run, const float *sums, int64_t channels, float *rows, int64_t ld,
                      int64_t n)
{
    attn__back_parts parts = run->m.parts;
    for (int64_t i = 0; i < n; i++)
        parts.row[i] = i * ld;
    attn__lanes_view view = {rows, ATTN_F32, parts.row, NULL, channels, n};
    run->plan->lanes->scatter(&view, sums, run->plan->ld_keys, parts.ones);
}

void attn__back_parts_rows(const attn__back_run *run, int64_t n)
{
    const attn__back_plan *plan = run->plan;
    const attn__back_scratch *m = &run->m;
    if (n == 0)
        return;
    for (int64_t i = 0; i < plan->ld_keys; i++)
        m->parts.ones[i] = 1.0f;
    turn_back(run, m->dk, plan->d, m->dk_rows, plan->dp, n);
    turn_back(run, m->dv, plan->dv, m->dv_rows, plan->dvp, n);
}

/* ------------------------------------------------------------------------------------------------ products */

/* Sides from this block or step of theirs on. */
static attn__parts_side from_block(attn__parts_side side, int64_t block)
{
    side.data += block * side.block;
    return side;
}

static attn__parts_side from_step(attn__parts_side side, int64_t step)
{
    side.data += step * side.step;
    return side;
}

/* S and dP of the rows. */
static void scores(attn__back_run *run, const attn__weights_args *t, int64_t first, int64_t row)
{
    const attn__back_plan *plan = run->plan;
    const attn__back_parts *x = &run->m.parts;
    int64_t block = row / ATTN__PARTS_SIDE, key_block = first / ATTN__PARTS_SIDE;
    attn__parts_args s = {.m = attn__pieces(t->rows, ATTN__PARTS_SIDE), .n = attn__pieces(t->keys, ATTN__PARTS_SIDE),
                          .k = attn__pieces(plan->d, ATTN__PARTS_DEPTH), .parts = plan->parts,
                          .a = from_block(x->q, block), .b = from_block(x->kt, key_block),
                          .c = t->s, .ldc = plan->strip};
    plan->matrix->run(&s);
    if (!t->dp)
        return;
    s.k = attn__pieces(plan->dv, ATTN__PARTS_DEPTH);
    s.a = from_block(x->dout, block);
    s.b = from_block(x->vt, key_block);
    s.c = t->dp;
    plan->matrix->run(&s);
}

/* Weights of their own kind go through memory once more. */
static bool weigh(attn__back_run *run, attn__weights_args *t)
{
    const attn__back_plan *plan = run->plan;
    const attn__back_parts *x = &run->m.parts;
    float factor = plan->bf16 ? plan->score_scale : 1.0f;
    bool fused = t->plain && !(run->want & ATTN__BACK_BIAS);
    for (int64_t r = 0; r < t->rows && !fused && plan->bf16; r++)
        plan->backward->put(t->s + r * t->ld, t->s + r * t->ld, t->keys, factor, false);
    if (!fused)
        plan->backward->weights(t);
    return attn__parts_weigh(&(attn__parts_weights){
        .rows = t->rows, .keys = t->keys, .ld = t->ld, .s = t->s, .dp = t->dp, .lse = fused ? t->lse : NULL,
        .delta = fused ? t->delta : NULL, .factor = factor, .parts = plan->parts, .p = x->p, .across = x->across,
        .along = x->along});
}

/* dV^T += dO^T P, dK^T += Q^T dS, dQ += dS K. */
static void gradients(attn__back_run *run, const attn__weights_args *t, int64_t first, int64_t row)
{
    const attn__back_plan *plan = run->plan;
    const attn__back_parts *x = &run->m.parts;
    int64_t step = row / ATTN__PARTS_DEPTH;
    attn__parts_args g = {.n = attn__pieces(t->keys, ATTN__PARTS_SIDE), .k = attn__pieces(t->rows, ATTN__PARTS_DEPTH),
                          .parts = plan->parts, .ldc = plan->ld_keys, .accumulate = true};
    if (run->want & ATTN__BACK_V) {
        g.m = plan->dvp / ATTN__PARTS_SIDE;
        g.a = from_step(x->dout_across, step);
        g.b = x->p;
        g.c = run->m.dv + first;
        plan->matrix->run(&g);
    }
    g.b = x->across;
    if (run->want & ATTN__BACK_K) {
        g.m = plan->dp / ATTN__PARTS_SIDE;
        g.a = from_step(x->q_across, step);
        g.c = run->m.dk + first;
        plan->matrix->run(&g);
    }
    if (run->want & ATTN__BACK_Q) {
        g = (attn__parts_args){.m = attn__pieces(t->rows, ATTN__PARTS_SIDE), .n = plan->dp / ATTN__PARTS_SIDE,
                               .k = attn__pieces(t->keys, ATTN__PARTS_DEPTH), .parts = plan->parts, .a = x->along,
                               .b = from_step(x->k, first / ATTN__PARTS_DEPTH), .c = run->dq + row * plan->dp,
                               .ldc = plan->dp, .accumulate = true};
        plan->matrix->run(&g);
    }
}

bool attn__back_parts_strip(attn__back_run *run, attn__weights_args *t, int64_t first, int64_t row)
{
    if (!run->keys_split || !run->queries_split)
        return false;
    scores(run, t, first, row);
    if (!weigh(run, t))
        return false;
    gradients(run, t, first, row);
    return true;
}
