/* SPDX-License-Identifier: MIT
 *
 * flash_backward_amx.c - products of the backward pass on AMX.
 */
#include "attend/solve/flash_backward.h"

#include "base/integers.h"

enum { AMX_TILE_Q = 128, AMX_STRIP = 64 };

/* Reports whether AMX is faster. Small heads leave most of each tile empty. In small problems, splitting numbers into
 * terms takes longer than the products save, most of all with three terms (docs/performance.md). */
static bool is_worth_it(const attn__flash_backward_plan *p)
{
    int64_t channels = p->bf16 ? 32 : 48, rows = p->bf16 ? 48 : 128;
    return p->d >= channels && p->dv >= channels && p->nq >= rows && p->nk >= rows;
}

/* Chooses tiles of queries, strips and blocks of keys for AMX. */
static bool choose(attn__flash_backward_plan *p, const attn__canonical *canonical)
{
    p->amx = attn__bf16x3_for(canonical->isa);
    p->terms = p->bf16 ? 1 : ATTN__BF16X3_F32;
    if (!p->amx || !is_worth_it(p))
        return false;
    p->isa = p->amx->isa;
    p->tile_q = attn__min(AMX_TILE_Q, attn__round_up(p->nq, ATTN__BF16X3_DEPTH));
    p->strip = attn__min(AMX_STRIP, attn__round_up(p->nk, ATTN__BF16X3_DEPTH));
    int64_t bytes = 2 * p->terms * (2 * p->dp + p->dvp) + (int64_t)sizeof(float) * (p->dp + p->dvp);
    int64_t strips = (int64_t)canonical->caches.l2 / 2 / (bytes * p->strip);
    p->block_k = attn__min(strips > 1 ? strips : 1, attn__ceil_div(p->nk, p->strip)) * p->strip;
    return true;
}

static void place(const attn__flash_backward_plan *p, attn__arena *s, attn__flash_backward_scratch *m)
{
    attn__flash_backward_amx *x = &m->amx;
    const int64_t side = ATTN__BF16X3_SIDE, depth = ATTN__BF16X3_DEPTH;
    x->p = attn__flash_take_side(s, p->terms, p->strip / side, p->tile_q / depth);
    x->across = attn__flash_take_side(s, p->terms, p->strip / side, p->tile_q / depth);
    x->along = attn__flash_take_side(s, p->terms, p->tile_q / side, p->strip / depth);
    x->q = attn__flash_take_side(s, p->terms, p->tile_q / side, attn__ceil_div(p->d, depth));
    x->dout = attn__flash_take_side(s, p->terms, p->tile_q / side, attn__ceil_div(p->dv, depth));
    x->q_across = attn__flash_take_side(s, p->terms, p->dp / side, p->tile_q / depth);
    x->dout_across = attn__flash_take_side(s, p->terms, p->dvp / side, p->tile_q / depth);
    x->kt = attn__flash_take_side(s, p->terms, p->block_k / side, attn__ceil_div(p->d, depth));
    x->vt = attn__flash_take_side(s, p->terms, p->block_k / side, attn__ceil_div(p->dv, depth));
    x->k = attn__flash_take_side(s, p->terms, p->dp / side, p->block_k / depth);
    x->row = attn__arena_take(s, attn__max(p->block_k, p->tile_q), sizeof *x->row);
    x->ones = attn__arena_take(s, p->ld_keys, sizeof *x->ones);
}

/* --------------------------------------------------------------------------------------------------------- packing */

/* Packs rows as tiles: the caller's rows, or `copies` if channels are not adjacent. Returns false if some number does
 * not fit. */
static bool pack_tiles(const attn__flash_backward_run *run, attn__operand op, const float *copies, int64_t ld,
                       attn__bf16x3_side along, attn__bf16x3_side across)
{
    attn__rows x = attn__flash_backward_rows(run, op);
    attn__bf16x3_pack pack = {.data = x.data,
                              .dtype = x.dtype,
                              .parts = run->plan->terms,
                              .row_at = x.at,
                              .rows = x.rows,
                              .columns = x.n,
                              .keyed = op == ATTN__OP_K,
                              .along = along,
                              .across = across};
    int64_t *at = run->m.amx.row;
    if (x.channel) {
        for (int64_t i = 0; i < x.rows; i++)
            at[i] = i * ld;
        pack.data = copies;
        pack.dtype = ATTN_F32;
        pack.row_at = at;
    }
    return attn__bf16x3_pack_rows(&pack, 0, attn__round_up(x.rows, ATTN__BF16X3_DEPTH));
}

/* Transposes packed tiles, because another product needs them as its other operand. */
static void transpose_tiles(const attn__flash_backward_plan *plan, const attn__bf16x3_side *side, int64_t rows)
{
    plan->amx->transpose(side->data, attn__ceil_div(rows, ATTN__BF16X3_SIDE) * side->block / ATTN__BF16X3_TILE);
}

static void pack(attn__flash_backward_run *run, bool keys)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__flash_backward_scratch *m = &run->m;
    const attn__flash_backward_amx *x = &m->amx;
    const attn__bf16x3_side none = {0};
    attn__flash_backward_side *side = keys ? &run->keys : &run->queries;
    attn__operand op = keys ? ATTN__OP_K : ATTN__OP_Q, value = keys ? ATTN__OP_V : ATTN__OP_DOUT;
    side->finite = true;
    if (plan->channel[op] || plan->channel[value])
        attn__flash_backward_copy(run, keys);
    side->split =
        pack_tiles(run, op, keys ? m->keys.k : m->q, plan->dp, keys ? x->kt : x->q, keys ? x->k : x->q_across);
    side->split = pack_tiles(run, value, keys ? m->keys.v : m->dout, plan->dvp, keys ? x->vt : x->dout,
                             keys ? none : x->dout_across) &&
                  side->split;
    if (!side->split)
        attn__flash_backward_copy(run, keys);
    transpose_tiles(plan, keys ? &x->kt : &x->q_across, keys ? run->block_n : plan->d);
    transpose_tiles(plan, keys ? &x->vt : &x->dout_across, keys ? run->block_n : plan->dv);
}

static void transpose_back(const attn__flash_backward_run *run, const float *sums, int64_t channels, float *rows,
                           int64_t ld, int64_t n)
{
    attn__flash_backward_amx amx = run->m.amx;
    for (int64_t i = 0; i < n; i++)
        amx.row[i] = i * ld;
    attn__lane_view view = {rows, ATTN_F32, amx.row, NULL, channels, n};
    run->plan->tiles.lanes->scatter(&view, sums, run->plan->ld_keys, amx.ones);
}

static void transpose_sums(const attn__flash_backward_run *run, int64_t n)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__flash_backward_scratch *m = &run->m;
    if (n == 0)
        return;
    for (int64_t i = 0; i < plan->ld_keys; i++)
        m->amx.ones[i] = 1.0f;
    transpose_back(run, m->keys.dk, plan->d, m->keys.dk_rows, plan->dp, n);
    transpose_back(run, m->keys.dv, plan->dv, m->keys.dv_rows, plan->dvp, n);
}

/* Stores transposed sums in the caller's rows. While it transposes a square of rows, it prefetches the next square. */
static void put_transposed(const attn__flash_backward_run *run, attn__operand op, const float *sums, float scale)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__rows to = attn__flash_backward_rows(run, op);
    attn__flash_backward_find(run, op, run->block, to.rows);
    for (int64_t i = 0; i < ATTN__BF16X3_SIDE; i++)
        run->m.amx.ones[i] = scale;
    for (int64_t i = 0; i < to.rows; i += ATTN__BF16X3_SIDE) {
        int64_t rows = attn__min(to.rows - i, ATTN__BF16X3_SIDE);
        for (int64_t r = i + rows; r < i + rows + ATTN__BF16X3_SIDE; r++)
            attn__rows_prefetch(&to, r);
        attn__lane_view view = {(void *)(uintptr_t)to.data, to.dtype, to.at + i, NULL, to.n, rows};
        plan->tiles.lanes->scatter(&view, sums + i, plan->ld_keys, run->m.amx.ones);
    }
}

/* See attn__flash_backward_products.store. */
static bool store(const attn__flash_backward_run *run, int64_t n, int64_t size)
{
    const attn__flash_backward_plan *plan = run->plan;
    if (n < size || !plan->store_kv || !run->first || plan->channel[ATTN__OP_DK] || plan->channel[ATTN__OP_DV]) {
        transpose_sums(run, n);
        return false;
    }
    if (run->want & ATTN_WANT_DK)
        put_transposed(run, ATTN__OP_DK, run->m.keys.dk, (float)run->canonical->problem.scale);
    if (run->want & ATTN_WANT_DV)
        put_transposed(run, ATTN__OP_DV, run->m.keys.dv, 1.0f);
    return true;
}

/* -------------------------------------------------------------------------------------------------------- products */

static attn__bf16x3_side from_step(attn__bf16x3_side side, int64_t step)
{
    side.data += step * side.step;
    return side;
}

/* Computes S = Q K^T or dP = dO V^T. */
static void amx_scores(const attn__flash_backward_strip *x, const attn__bf16x3_side *a, int64_t channels,
                       const attn__bf16x3_side *b, float *c, attn__interleaved *interleaved)
{
    attn__bf16x3_args s = {.m = attn__ceil_div(x->t.nrows, ATTN__BF16X3_SIDE),
                           .n = attn__ceil_div(x->t.nkeys, ATTN__BF16X3_SIDE),
                           .k = attn__ceil_div(channels, ATTN__BF16X3_DEPTH),
                           .parts = x->run->plan->terms,
                           .a = attn__flash_from_block(*a, x->t.row / ATTN__BF16X3_SIDE),
                           .b = attn__flash_from_block(*b, x->t.key / ATTN__BF16X3_SIDE),
                           .c = c,
                           .ldc = x->run->plan->strip};
    x->run->plan->amx->run_interleaved(&s, interleaved);
}

/* Adds dO^T P to dV^T, or Q^T dS to dK^T. */
static void amx_across(const attn__flash_backward_strip *x, const attn__bf16x3_side *a, int64_t channels,
                       const attn__bf16x3_side *b, float *c, attn__interleaved *interleaved)
{
    const attn__flash_backward_plan *plan = x->run->plan;
    attn__bf16x3_args g = {.m = channels / ATTN__BF16X3_SIDE,
                           .n = attn__ceil_div(x->t.nkeys, ATTN__BF16X3_SIDE),
                           .k = attn__ceil_div(x->t.nrows, ATTN__BF16X3_DEPTH),
                           .parts = plan->terms,
                           .a = from_step(*a, x->t.row / ATTN__BF16X3_DEPTH),
                           .b = *b,
                           .c = c + x->t.key,
                           .ldc = plan->ld_keys,
                           .accumulate = true};
    plan->amx->run_interleaved(&g, interleaved);
}

/* Adds dS K to dQ. */
static void amx_along(const attn__flash_backward_strip *x, attn__interleaved *interleaved)
{
    const attn__flash_backward_plan *plan = x->run->plan;
    const attn__flash_backward_amx *m = &x->run->m.amx;
    attn__bf16x3_args g = {.m = attn__ceil_div(x->t.nrows, ATTN__BF16X3_SIDE),
                           .n = plan->dp / ATTN__BF16X3_SIDE,
                           .k = attn__ceil_div(x->t.nkeys, ATTN__BF16X3_DEPTH),
                           .parts = plan->terms,
                           .a = m->along,
                           .b = from_step(m->k, x->t.key / ATTN__BF16X3_DEPTH),
                           .c = x->run->dq + x->t.row * plan->dp,
                           .ldc = plan->dp,
                           .accumulate = true};
    plan->amx->run_interleaved(&g, interleaved);
}

/* Computes the weights in a separate pass over the scores. It is used if no product computes them. */
static void amx_weigh_apart(attn__flash_backward_strip *x)
{
    const attn__flash_backward_plan *plan = x->run->plan;
    const attn__tile *t = &x->t;
    for (int64_t r = 0; r < t->nrows; r++)
        plan->tiles.backward->store(t->s + r * t->ld, t->s + r * t->ld, t->nkeys, plan->score_scale, false);
    attn__tile_weights(&x->t);
}

/* Computes S, dP and P. In plain strips of three terms, P is computed during the product for dP. Returns false if a
 * number does not fit in bf16 terms. */
static bool amx_weigh(attn__flash_backward_strip *x)
{
    attn__bf16x3_softmax_backward w;
    const attn__flash_backward_plan *plan = x->run->plan;
    const attn__flash_backward_amx *m = &x->run->m.amx;
    bool fused = x->weights.lse, three = x->weights.parts > 1;
    amx_scores(x, &m->q, plan->d, &m->kt, x->t.s, NULL);
    attn__bf16x3_begin_p(&w, &x->weights);
    if (x->t.ds)
        amx_scores(x, &m->dout, plan->dv, &m->vt, x->t.ds, fused && three ? &w.interleaved : NULL);
    if (!fused)
        amx_weigh_apart(x);
    return three ? attn__bf16x3_finish(&w) : attn__bf16x3_weigh(&x->weights);
}

/* Computes dV and dS. With three terms, dS is computed during the product for dV. Returns false if a number of dS does
 * not fit in bf16 terms. */
static bool amx_gradients_of_weights(const attn__flash_backward_strip *x)
{
    attn__bf16x3_softmax_backward w;
    const attn__flash_backward_run *run = x->run;
    const attn__flash_backward_amx *m = &run->m.amx;
    bool wanted = x->t.ds && x->weights.parts > 1;
    if (wanted)
        attn__bf16x3_begin_ds(&w, &x->weights);
    if (run->want & ATTN_WANT_DV)
        amx_across(x, &m->dout_across, run->plan->dvp, &m->p, run->m.keys.dv, wanted ? &w.interleaved : NULL);
    return !wanted || attn__bf16x3_finish(&w);
}

/* Runs a strip on AMX. Returns the gradients that it left out because a number does not fit in bf16 terms. */
static unsigned run_amx(attn__flash_backward_strip *x)
{
    const attn__flash_backward_run *run = x->run;
    const attn__flash_backward_amx *m = &run->m.amx;
    const attn__tile_rows *rows = &run->m.rows;
    x->weights =
        (attn__bf16x3_weights){.rows = x->t.nrows,
                               .keys = x->t.nkeys,
                               .ld = x->t.ld,
                               .s = x->t.s,
                               .dp = x->t.ds,
                               .lse = run->plain && !(run->want & ATTN_WANT_DBIAS) ? rows->lse + x->t.row : NULL,
                               .delta = rows->delta + x->t.row,
                               .factor = run->plan->score_scale,
                               .parts = run->plan->terms,
                               .p = m->p,
                               .across = m->across,
                               .along = m->along};
    if (!run->keys.split || !run->queries.split || !amx_weigh(x))
        return run->want;
    if (!amx_gradients_of_weights(x))
        return run->want & ~(unsigned)ATTN_WANT_DV;
    if (run->want & ATTN_WANT_DK)
        amx_across(x, &m->q_across, run->plan->dp, &m->across, run->m.keys.dk, NULL);
    if (run->want & ATTN_WANT_DQ)
        amx_along(x, NULL);
    return 0;
}

static void begin(const attn__flash_backward_plan *plan)
{
    plan->amx->begin();
}

static void end(const attn__flash_backward_plan *plan)
{
    plan->amx->end();
}

const attn__flash_backward_products attn__flash_backward_by_amx = {.choose = choose,
                                                                   .place = place,
                                                                   .begin = begin,
                                                                   .end = end,
                                                                   .pack = pack,
                                                                   .run = run_amx,
                                                                   .store = store,
                                                                   .row_step = ATTN__BF16X3_DEPTH,
                                                                   .apart = true,
                                                                   .transposed = true};
