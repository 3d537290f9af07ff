/* SPDX-License-Identifier: MIT
 *
 * small_sequence_backward.c - gradients of one short head, keys in the lanes:
 *
 *     P = 2^(q k - lse)     dS = P (dout v - delta)     dv = P^T dout     dk = dS^T q     dq = dS k
 */
#include "attend/small_sequence/small_sequence_plan.h"
#include "base/constants.h"

#include <math.h>

typedef struct operands {
    attn__small_sequence_rows q, k, v, o, dout, dq, dk, dv;
} operands;

static operands find_operands(const attn__small_sequence_head *h)
{
    const attn_arrays *x = h->arrays;
    const attn__group *query = &h->canonical->query, *key = &h->canonical->key;
    const attn_dim *at = &h->at.at, *next = &h->next.at;
    int64_t d = h->plan->channels, dv = h->plan->values;
#define ROWS(name, group, n)                                                                                           \
    attn__small_sequence_rows_of(x->name, at->name, next->name, group, ATTN__STRIDE(dim.name), n)
    return (operands){ROWS(q, query, d),     ROWS(k, key, d),    ROWS(v, key, dv), ROWS(o, query, dv),
                      ROWS(dout, query, dv), ROWS(dq, query, d), ROWS(dk, key, d), ROWS(dv, key, dv)};
#undef ROWS
}

/* A row without keys gets an lse of +inf, which makes its weights 0. */
static void read_lse(const attn__small_sequence_head *h)
{
    const float *lse = (const float *)h->arrays->lse + h->at.at.lse;
    int64_t step = h->canonical->query.axis[0].dim.lse;
    for (int64_t i = 0; i < h->plan->queries; i++) {
        float x = lse[i * step];
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
                                        .plain = finite && !p->limited && !canonical->has_dropout,
                                        .from = h->m.from,
                                        .to = h->m.to,
                                        .alive = finite ? NULL : h->m.alive};
    if (!args.plain) /* columns without a key are never read */
        attn__small_sequence_limits(h);
    if (canonical->has_dropout) {
        args.drop_key = h->m.key;
        args.drop_column = h->m.column;
        args.drop_below = p->drop_below;
        args.drop_scale = p->drop_scale;
    }
    p->backward->weights(&args);
}

static void spread(const attn__small_sequence_head *h, const attn__small_sequence_sums *t, bool finite, uint8_t bit)
{
    if (finite)
        h->plan->kernel->sum(t);
    else
        attn__small_sequence_sum_guarded(h, t, h->m.alive, bit);
}

static void run_head(const attn__small_sequence_head *h)
{
    const attn__small_sequence *p = h->plan;
    const attn__small_sequence_scratch *m = &h->m;
    const attn_problem *problem = &h->canonical->problem;
    operands x = find_operands(h);
    float scale = (float)problem->scale;
    p->kernel->transpose(&x.k, (float)(problem->scale * ATTN__LOG2E), m->panel, p->width);
    bool finite = p->kernel->score(&x.q, m->panel, m->s, p->width);
    p->kernel->transpose(&x.v, 1.0f, m->panel, p->width);
    finite = p->kernel->score(&x.dout, m->panel, m->ds, p->width) && finite;
    p->kernel->dots(&x.dout, &x.o, m->delta);
    read_lse(h);
    weigh(h, finite);
    attn__small_sequence_sums t = {x.dv, x.dout, m->s, p->width, 1, 1.0f, NULL, problem->accumulate};
    if (problem->flags & ATTN_WANT_DV)
        spread(h, &t, finite, 2);
    t = (attn__small_sequence_sums){x.dk, x.q, m->ds, p->width, 1, scale, NULL, problem->accumulate};
    if (problem->flags & ATTN_WANT_DK)
        spread(h, &t, finite, 1);
    t = (attn__small_sequence_sums){x.dq, x.k, m->ds, 1, p->width, scale, NULL, problem->accumulate};
    if (problem->flags & ATTN_WANT_DQ)
        spread(h, &t, finite, 1);
}

void attn__small_sequence_backward(const attn__canonical *canonical, const attn__recipe *recipe,
                                   const attn_arrays *arrays, void *workspace)
{
    attn__small_sequence_each(canonical, recipe, arrays, workspace, run_head);
}
