/* SPDX-License-Identifier: MIT
 *
 * small_sequence_forward.c - outputs of one short head, queries in the lanes: all scores at once, their softmax down
 * the columns.
 */
#include "attend/solve/small_sequence_plan.h"
#include "base/constants.h"

#include <math.h>

typedef struct operands {
    attn__small_sequence_rows q, k, v, o;
} operands;

static operands find_operands(const attn__small_sequence_head *h)
{
    operands x = {attn__small_sequence_rows_of(h, ATTN__OP_Q), attn__small_sequence_rows_of(h, ATTN__OP_K),
                  attn__small_sequence_rows_of(h, ATTN__OP_V), attn__small_sequence_rows_of(h, ATTN__OP_O)};
    if (h->plan->copies) {
        attn__small_sequence_copy(h, ATTN__OP_K, &x.k);
        attn__small_sequence_copy(h, ATTN__OP_V, &x.v);
    }
    return x;
}

static void drop(const attn__small_sequence_head *h, float *weights)
{
    const attn__small_sequence *p = h->plan;
    const attn__small_sequence_scratch *m = &h->m;
    attn__lane_dropout dropout = {weights,      p->keys, p->width, m->low, m->high, (const uint32_t *)p->drop_column,
                                  p->drop_below};
    p->lanes->dropout(&dropout);
}

/* Marks the pairs that have a weight and survive dropout.  The weights cannot tell: some attended ones
 * underflow to 0. */
static void note_alive(const attn__small_sequence_head *h)
{
    const attn__small_sequence *p = h->plan;
    float *kept = h->m.ds; /* not used forward otherwise */
    for (int64_t i = 0; i < p->keys * p->width; i++)
        kept[i] = 1.0f;
    if (h->canonical->has_dropout)
        drop(h, kept);
    for (int64_t i = 0; i < p->keys * p->width; i++)
        h->m.alive[i] = h->m.s[i] != -INFINITY && kept[i] != 0.0f;
}

static void find_weights(const attn__small_sequence_head *h, const operands *x, bool careful)
{
    const attn__small_sequence *p = h->plan;
    const attn__small_sequence_scratch *m = &h->m;
    bool changed;
    p->kernel->score(&x->k, m->panel, m->s, p->width);
    if (p->has_bias)
        p->lanes->add(m->s, m->bias, p->keys * p->width, 1.0f);
    if (p->limited)
        p->lanes->limit(m->s, p->keys, p->width, p->index, m->from, m->to, -INFINITY);
    if (p->has_mask)
        p->lanes->hide(m->s, m->flags, p->keys * p->width, -INFINITY);
    if (careful)
        note_alive(h);
    for (int64_t i = 0; i < p->width; i++) {
        m->m[i] = -INFINITY;
        m->l[i] = 0.0f;
    }
    attn__online_softmax_args softmax = {m->s, p->keys, p->width, NULL, m->m, m->l, m->shrink, &changed};
    p->lanes->softmax(&softmax);
    if (h->canonical->has_dropout)
        drop(h, m->s);
    for (int64_t i = 0; i < p->width; i++)
        m->shrink[i] = m->l[i] == 0.0f ? 0.0f : p->drop_scale / m->l[i];
}

static void write_lse(const attn__small_sequence_head *h)
{
    float *lse = (float *)h->arrays->lse + h->now.at.lse;
    const int64_t *at = h->plan->query_at[ATTN__OP_LSE];
    for (int64_t i = 0; i < h->plan->queries; i++) {
        double l = h->m.l[i], m = h->m.m[i];
        lse[at[i]] = l == 0.0 ? -INFINITY : (float)(log(l) + m / ATTN__LOG2E);
    }
}

static void run_head(attn__small_sequence_head *h)
{
    const attn__small_sequence *p = h->plan;
    const attn__small_sequence_scratch *m = &h->m;
    operands x = find_operands(h);
    if (p->limited || h->canonical->has_dropout)
        attn__small_sequence_limits(h);
    attn__small_sequence_load_pairs(h);
    p->kernel->transpose(&x.q, (float)(h->canonical->problem.scale * ATTN__LOG2E), m->panel, p->width);
    find_weights(h, &x, false);
    attn__small_sequence_sums t = {x.o, x.v, m->s, p->width, 1, 1.0f, m->shrink, false};
    if (!p->kernel->sum(&t)) {
        find_weights(h, &x, true);
        attn__small_sequence_sum_guarded(h, &t, m->alive, 1);
    }
    if (h->canonical->problem.flags & ATTN_WANT_LSE)
        write_lse(h);
}

void attn__small_sequence_forward(const attn__canonical *canonical, const attn__recipe *recipe,
                                  const attn_arrays *arrays, void *workspace)
{
    attn__small_sequence_each(canonical, recipe, arrays, workspace, run_head);
}
