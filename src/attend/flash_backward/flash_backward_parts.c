/* SPDX-License-Identifier: MIT
 *
 * flash_backward_parts.c - the tile products in the matrix unit; flash_backward.h says which.
 */
#include "attend/flash_backward/flash_backward.h"

#include "attend/task/pile.h"
#include "base/integers.h"
#include "kernels/parts/parts_backward.h"

#include <string.h>

enum { TILE_Q = 128, STRIP = 64 };

/* Small heads leave too much of each tile empty, and in small problems splitting numbers, three parts above all, takes
 * longer than products of them save (docs/performance.md). */
static bool is_worth_it(const attn__back_plan *p)
{
    int64_t channels = p->bf16 ? 32 : 48, rows = p->bf16 ? 48 : 128;
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
    x->row = attn__pile_take(&s, attn__most(p->block_k, p->tile_q), sizeof *x->row);
    x->ones = attn__pile_take(&s, p->ld_keys, sizeof *x->ones);
    return s.used;
}

/* ------------------------------------------------------------------------------------------------- packing */

/* Rows of the caller's, or copies of them if their channels are not neighbours. */
static attn__parts_pack rows_of(const attn__back_run *run, const void *data, const int64_t *at, int64_t rows,
                                int64_t columns)
{
    const attn__back_plan *plan = run->plan;
    return (attn__parts_pack){.data = data,
                              .dtype = plan->bf16 ? ATTN_BF16 : ATTN_F32,
                              .parts = plan->parts,
                              .row_at = at,
                              .rows = rows,
                              .columns = columns};
}

static void take_copies(attn__back_run *run, attn__parts_pack *rows, const float *copies, int64_t ld)
{
    int64_t *at = run->m.parts.row;
    for (int64_t i = 0; i < rows->rows; i++)
        at[i] = i * ld;
    rows->data = copies;
    rows->dtype = ATTN_F32;
    rows->row_at = at;
}

static bool pack(const attn__parts_pack *rows)
{
    return attn__parts_pack_rows(rows, 0, attn__round_up(rows->rows, ATTN__PARTS_DEPTH));
}

/* Packed blocks to what stands at the other side of a product. */
static void turn(const attn__back_plan *plan, const attn__parts_side *side, int64_t rows)
{
    plan->matrix->turn(side->data, attn__pieces(rows, ATTN__PARTS_SIDE) * side->block / ATTN__PARTS_TILE);
}

/* The rows of keys and values, split; clears dK^T and dV^T. */
void attn__back_parts_keys(attn__back_run *run)
{
    const attn__back_plan *plan = run->plan;
    attn__back_scratch *m = &run->m;
    attn__parts_pack k = rows_of(run, run->arrays->k, m->k_at, run->block_n, plan->d);
    attn__parts_pack v = rows_of(run, run->arrays->v, m->v_at, run->block_n, plan->dv);
    run->keys_copied = false;
    run->keys_finite = true;
    k.keyed = true;
    k.along = m->parts.kt;
    k.across = m->parts.k;
    v.along = m->parts.vt;
    if (plan->channels.k || plan->channels.v)
        attn__back_copy_keys(run);
    if (plan->channels.k)
        take_copies(run, &k, m->k, plan->dp);
    run->keys_split = pack(&k);
    if (plan->channels.v)
        take_copies(run, &v, m->v, plan->dvp);
    run->keys_split = pack(&v) && run->keys_split;
    if (!run->keys_split)
        attn__back_copy_keys(run);
    turn(plan, &k.along, k.rows);
    turn(plan, &v.along, v.rows);
    memset(m->dk, 0, (size_t)(plan->ld_keys * plan->dp) * sizeof(float));
    memset(m->dv, 0, (size_t)(plan->ld_keys * plan->dvp) * sizeof(float));
}

void attn__back_parts_queries(attn__back_run *run)
{
    const attn__back_plan *plan = run->plan;
    attn__back_scratch *m = &run->m;
    attn__parts_pack q = rows_of(run, run->arrays->q, m->q_at, run->tile_n, plan->d);
    attn__parts_pack dout = rows_of(run, run->arrays->dout, m->dout_at, run->tile_n, plan->dv);
    run->queries_copied = false;
    run->queries_finite = true;
    q.along = m->parts.q;
    q.across = m->parts.q_across;
    dout.along = m->parts.dout;
    dout.across = m->parts.dout_across;
    if (plan->channels.q || plan->channels.dout)
        attn__back_copy_queries(run);
    if (plan->channels.q)
        take_copies(run, &q, m->q, plan->dp);
    run->queries_split = pack(&q);
    if (plan->channels.dout)
        take_copies(run, &dout, m->dout, plan->dvp);
    run->queries_split = pack(&dout) && run->queries_split;
    if (!run->queries_split)
        attn__back_copy_queries(run);
    turn(plan, &q.across, q.columns);
    turn(plan, &dout.across, dout.columns);
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

/* Sums that are whole, straight to where the caller wants them: the lines of a square of rows are asked for while the one
 * before is turned. */
static void put_turned(const attn__back_run *run, const float *sums, void *data, size_t stride, int64_t base,
                       int64_t channels, int64_t *at, float scale)
{
    const attn__back_plan *plan = run->plan;
    int64_t n = run->block_n;
    attn__back_walk(&run->task->key, stride, run->block, n, base, at);
    for (int64_t i = 0; i < ATTN__PARTS_SIDE; i++)
        run->m.parts.ones[i] = scale;
    for (int64_t i = 0; i < n; i += ATTN__PARTS_SIDE) {
        int64_t rows = attn__least(n - i, ATTN__PARTS_SIDE);
        for (int64_t r = i + rows; r < i + rows + ATTN__PARTS_SIDE; r++)
            attn__back_ask(plan, data, at, r, n, channels);
        attn__lanes_view view = {data, plan->bf16 ? ATTN_BF16 : ATTN_F32, at + i, NULL, channels, rows};
        plan->lanes->scatter(&view, sums + i, plan->ld_keys, run->m.parts.ones);
    }
}

bool attn__back_parts_put(const attn__back_run *run)
{
    const attn__back_plan *plan = run->plan;
    const attn_arrays *x = run->arrays;
    const attn_dim *at = &run->item.at;
    if (!plan->store_kv || !run->first || plan->channels.dk || plan->channels.dv)
        return false;
    if (run->want & ATTN__BACK_K)
        put_turned(run, run->m.dk, x->dk, ATTN__STRIDE(dim.dk), at->dk, plan->d, run->m.dk_at,
                   (float)run->task->problem.scale);
    if (run->want & ATTN__BACK_V)
        put_turned(run, run->m.dv, x->dv, ATTN__STRIDE(dim.dv), at->dv, plan->dv, run->m.dv_at, 1.0f);
    return true;
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

/* A strip in progress: its weights' arguments, and where its rows and keys lie in what is packed. */
typedef struct strip {
    attn__back_run *run;
    attn__weights_args *t;
    int64_t first, row;
    attn__parts_weights weights;
} strip;

static void multiply(const strip *x, const attn__parts_args *args, attn__parts_beside *beside)
{
    x->run->plan->matrix->run_beside(args, beside);
}

/* S = Q K^T, ... */
static void scores(const strip *x, attn__parts_beside *beside)
{
    const attn__back_plan *plan = x->run->plan;
    const attn__back_parts *m = &x->run->m.parts;
    attn__parts_args s = {.m = attn__pieces(x->t->rows, ATTN__PARTS_SIDE),
                          .n = attn__pieces(x->t->keys, ATTN__PARTS_SIDE),
                          .k = attn__pieces(plan->d, ATTN__PARTS_DEPTH),
                          .parts = plan->parts,
                          .a = from_block(m->q, x->row / ATTN__PARTS_SIDE),
                          .b = from_block(m->kt, x->first / ATTN__PARTS_SIDE),
                          .c = x->t->s,
                          .ldc = plan->strip};
    multiply(x, &s, beside);
}

/* ... dP = dO V^T */
static void value_scores(const strip *x, attn__parts_beside *beside)
{
    const attn__back_plan *plan = x->run->plan;
    const attn__back_parts *m = &x->run->m.parts;
    attn__parts_args s = {.m = attn__pieces(x->t->rows, ATTN__PARTS_SIDE),
                          .n = attn__pieces(x->t->keys, ATTN__PARTS_SIDE),
                          .k = attn__pieces(plan->dv, ATTN__PARTS_DEPTH),
                          .parts = plan->parts,
                          .a = from_block(m->dout, x->row / ATTN__PARTS_SIDE),
                          .b = from_block(m->vt, x->first / ATTN__PARTS_SIDE),
                          .c = x->t->dp,
                          .ldc = plan->strip};
    multiply(x, &s, beside);
}

/* dV^T += dO^T P or dK^T += Q^T dS. */
static void across(const strip *x, const attn__parts_side *a, int64_t channels, const attn__parts_side *b, float *c,
                   attn__parts_beside *beside)
{
    const attn__back_plan *plan = x->run->plan;
    attn__parts_args g = {.m = channels / ATTN__PARTS_SIDE,
                          .n = attn__pieces(x->t->keys, ATTN__PARTS_SIDE),
                          .k = attn__pieces(x->t->rows, ATTN__PARTS_DEPTH),
                          .parts = plan->parts,
                          .a = from_step(*a, x->row / ATTN__PARTS_DEPTH),
                          .b = *b,
                          .c = c + x->first,
                          .ldc = plan->ld_keys,
                          .accumulate = true};
    multiply(x, &g, beside);
}

/* dQ += dS K. */
static void along(const strip *x, attn__parts_beside *beside)
{
    const attn__back_plan *plan = x->run->plan;
    const attn__back_parts *m = &x->run->m.parts;
    attn__parts_args g = {.m = attn__pieces(x->t->rows, ATTN__PARTS_SIDE),
                          .n = plan->dp / ATTN__PARTS_SIDE,
                          .k = attn__pieces(x->t->keys, ATTN__PARTS_DEPTH),
                          .parts = plan->parts,
                          .a = m->along,
                          .b = from_step(m->k, x->first / ATTN__PARTS_DEPTH),
                          .c = x->run->dq + x->row * plan->dp,
                          .ldc = plan->dp,
                          .accumulate = true};
    multiply(x, &g, beside);
}

/* Weights of their own kind go through memory once more. */
static void weigh_apart(const strip *x)
{
    const attn__back_plan *plan = x->run->plan;
    attn__weights_args *t = x->t;
    for (int64_t r = 0; r < t->rows; r++)
        plan->backward->put(t->s + r * t->ld, t->s + r * t->ld, t->keys, plan->score_scale, false);
    plan->backward->weights(t);
}

/* S and dP; then P, its weights beside the product dP, or all of one part. */
static bool weigh(const strip *x)
{
    attn__parts_weighing w;
    bool fused = x->weights.lse, three = x->weights.parts > 1;
    scores(x, NULL);
    attn__parts_begin_p(&w, &x->weights);
    if (x->t->dp)
        value_scores(x, fused && three ? &w.beside : NULL);
    if (!fused)
        weigh_apart(x);
    return three ? attn__parts_finish(&w) : attn__parts_weigh(&x->weights);
}

/* dV beside dS; false if dS is of no use. */
static bool gradients_of_weights(const strip *x)
{
    attn__parts_weighing w;
    const attn__back_run *run = x->run;
    const attn__back_parts *m = &run->m.parts;
    bool wanted = x->t->dp && x->weights.parts > 1;
    if (wanted)
        attn__parts_begin_ds(&w, &x->weights);
    if (run->want & ATTN__BACK_V)
        across(x, &m->dout_across, run->plan->dvp, &m->p, run->m.dv, wanted ? &w.beside : NULL);
    return !wanted || attn__parts_finish(&w);
}

static void gradients_of_scores(const strip *x)
{
    const attn__back_run *run = x->run;
    const attn__back_parts *m = &run->m.parts;
    if (run->want & ATTN__BACK_K)
        across(x, &m->q_across, run->plan->dp, &m->across, run->m.dk, NULL);
    if (run->want & ATTN__BACK_Q)
        along(x, NULL);
}

unsigned attn__back_parts_strip(attn__back_run *run, attn__weights_args *t, int64_t first, int64_t row)
{
    const attn__back_plan *plan = run->plan;
    const attn__back_parts *m = &run->m.parts;
    bool fused = run->plain && !(run->want & ATTN__BACK_BIAS);
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
        return run->want & ~(unsigned)ATTN__BACK_V;
    gradients_of_scores(&x);
    return 0;
}
