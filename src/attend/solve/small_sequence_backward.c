/* SPDX-License-Identifier: MIT
 *
 * small_sequence_backward.c - gradients of one short head, keys in the lanes:
 *
 *     P = 2^(q k - lse)     dS = P (dout v - delta)     dv = P^T dout     dk = dS^T q     dq = dS k
 */
#include "attend/solve/small_sequence_plan.h"
#include "base/constants.h"

#include <math.h>

/* A row without keys gets an lse of +inf, which makes its weights 0. */
static void read_lse(const attn__small_sequence_head *h)
{
    const float *lse = (const float *)h->arrays->lse + h->now.at.lse;
    const int64_t *at = h->plan->query_at[ATTN__OP_LSE];
    for (int64_t i = 0; i < h->plan->queries; i++) {
        float x = lse[at[i]];
        h->m.lse[i] = x == -INFINITY ? INFINITY : (float)((double)x * ATTN__LOG2E);
    }
}

/* P to m.s and dS to m.ds. */
static void weigh(const attn__small_sequence_head *h, bool finite)
{
    const attn__small_sequence *p = h->plan;
    const attn__canonical *canonical = h->canonical;
    attn__softmax_backward_args args = {.rows = p->queries,
                                        .keys = p->keys,
                                        .ld = p->width,
                                        .s = h->m.s,
                                        .dp = h->m.ds,
                                        .lse = h->m.lse,
                                        .delta = h->m.delta,
                                        .plain = finite && !p->limited && !canonical->has_dropout && !p->has_bias &&
                                                 !p->has_mask,
                                        .from = h->m.from,
                                        .to = h->m.to,
                                        .mask = p->has_mask ? h->m.mask : NULL,
                                        .bias = p->has_bias ? h->m.bias : NULL,
                                        .alive = finite ? NULL : h->m.alive};
    if (!args.plain) /* columns without a key are never read */
        attn__small_sequence_limits(h);
    if (canonical->has_dropout) {
        args.drop_key = h->m.key;
        args.drop_column = p->drop_column;
        args.drop_below = p->drop_below;
        args.drop_scale = p->drop_scale;
    }
    p->backward->weights(&args);
}

/* out += factor * sum over the rows of x; see attn__small_sequence_sums. */
static void spread(const attn__small_sequence_head *h, attn__operand out, const attn__small_sequence_rows *x,
                   const float *w, bool by_key, float factor, bool finite)
{
    attn__small_sequence_sums t = {.out = attn__small_sequence_rows_of(h, out),
                                   .x = *x,
                                   .w = w,
                                   .along = by_key ? h->plan->width : 1,
                                   .across = by_key ? 1 : h->plan->width,
                                   .factor = factor,
                                   .add = h->canonical->problem.accumulate};
    if (finite)
        h->plan->kernel->sum(&t);
    else
        attn__small_sequence_sum_guarded(h, &t, h->m.alive, out == ATTN__OP_DV ? 2 : 1);
}

static void run_head(attn__small_sequence_head *h)
{
    const attn__small_sequence *p = h->plan;
    const attn__small_sequence_scratch *m = &h->m;
    unsigned wishes = h->canonical->problem.flags;
    float scale = (float)h->canonical->problem.scale;
    attn__small_sequence_rows q = attn__small_sequence_rows_of(h, ATTN__OP_Q);
    attn__small_sequence_rows k = attn__small_sequence_rows_of(h, ATTN__OP_K);
    attn__small_sequence_rows v = attn__small_sequence_rows_of(h, ATTN__OP_V);
    attn__small_sequence_rows o = attn__small_sequence_rows_of(h, ATTN__OP_O);
    attn__small_sequence_rows dout = attn__small_sequence_rows_of(h, ATTN__OP_DOUT);
    p->kernel->dots(&dout, &o, m->delta);
    p->kernel->transpose(&k, (float)(h->canonical->problem.scale * ATTN__LOG2E), m->panel, p->width);
    if (p->copies) {
        attn__small_sequence_copy(h, ATTN__OP_Q, &q);
        attn__small_sequence_copy(h, ATTN__OP_K, &k);
        attn__small_sequence_copy(h, ATTN__OP_DOUT, &dout);
    }
    bool finite = p->kernel->score(&q, m->panel, m->s, p->width);
    p->kernel->transpose(&v, 1.0f, m->panel, p->width);
    finite = p->kernel->score(&dout, m->panel, m->ds, p->width) && finite;
    read_lse(h);
    attn__small_sequence_load_pairs(h);
    weigh(h, finite);
    if (p->wants_dbias)
        p->lanes->add(m->dbias, m->ds, p->queries * p->width, 1.0f);
    if (wishes & ATTN_WANT_DV)
        spread(h, ATTN__OP_DV, &dout, m->s, true, 1.0f, finite);
    if (wishes & ATTN_WANT_DK)
        spread(h, ATTN__OP_DK, &q, m->ds, true, scale, finite);
    if (wishes & ATTN_WANT_DQ)
        spread(h, ATTN__OP_DQ, &k, m->ds, false, scale, finite);
}

void attn__small_sequence_backward(const attn__canonical *canonical, const attn__recipe *recipe,
                                   const attn_arrays *arrays, void *workspace)
{
    attn__small_sequence_each(canonical, recipe, arrays, workspace, run_head);
}
