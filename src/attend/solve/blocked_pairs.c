/* SPDX-License-Identifier: MIT
 * A row of pairs from its scores to its weights: tables, softcap, bias, what it sees, softmax, dropout. */
#include "attend/solve/blocked.h"

#include "attend/block/element.h"
#include "attend/block/rows.h"
#include "base/rng.h"

#include <math.h>

/* s = cap tanh(s / cap), and its derivative. */
static void cap_row(double cap, double *s, double *slope, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        double x = tanh(s[j] / cap);
        s[j] = cap * x;
        slope[j] = 1 - x * x;
    }
}

static bool is_softmax(const attn__blocked *b)
{
    return b->canonical->problem.normalization == ATTN_NORMALIZATION_SOFTMAX;
}

static void fill(double *x, int64_t from, int64_t to, double with)
{
    for (int64_t j = from; j < to; j++)
        x[j] = with;
}

/* Where weights are not exponentials, or masked keys score: a bias of -inf masks, too. */
static double hide_counted(const attn__blocked *b, const attn__blocked_tile *t, double *s)
{
    uint8_t *seen = (uint8_t *)attn__blocked_at(b, b->plan->at.seen);
    double none = is_softmax(b) ? -(double)INFINITY : 0, masked = b->canonical->problem.mask_fill, count = 0;
    for (int64_t j = 0; j < t->pairs; j++) {
        if (s[j] == -(double)INFINITY && seen[j] == ATTN__BLOCKED_KEY)
            seen[j] = ATTN__BLOCKED_OUT;
        s[j] = seen[j] == ATTN__BLOCKED_KEY ? s[j] : seen[j] == ATTN__BLOCKED_FILL ? masked : none;
        count += seen[j] != ATTN__BLOCKED_OUT;
    }
    return count;
}

static void hide(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, double *s)
{
    int64_t from, to;
    const uint8_t *seen = attn__blocked_classify(b, t, i, &from, &to);
    if (!is_softmax(b) || b->canonical->problem.mask_fill != 0) {
        attn__blocked_at(b, b->plan->at.count)[i] += hide_counted(b, t, s);
    } else if (seen) {
        b->plan->kernel->hide(s, seen, t->pairs);
    } else {
        fill(s, 0, from, -(double)INFINITY);
        fill(s, to, t->pairs, -(double)INFINITY);
    }
}

double *attn__blocked_finish_scores(attn__blocked *b, const attn__blocked_tile *t, int64_t i)
{
    const attn__canonical *canonical = b->canonical;
    const attn__blocked_places *at = &b->plan->at;
    double *s = attn__blocked_gather_pairs(b, t, at->s, i);
    attn__blocked_add_tables(b, t, i, false, s);
    if (canonical->problem.softcap != 0)
        cap_row(canonical->problem.softcap, s, attn__blocked_at(b, at->slope), t->pairs);
    if (canonical->has_bias) {
        attn_dtype dtype = attn__operand_dtype(&canonical->problem, ATTN__OP_BIAS);
        const int64_t *key = attn__blocked_integers(b, at->bias_at);
        int64_t row = attn__blocked_offset(b, ATTN__STRIDE(dim.bias), t->query + i);
        for (int64_t j = 0; j < t->pairs; j++)
            s[j] += attn__load(dtype, b->arrays->bias, row + key[j]);
    }
    hide(b, t, i, s);
    return s;
}

/* A sink is a key of value 0 before all others. */
void attn__blocked_reset_softmax(const attn__blocked *b, const attn__blocked_tile *t)
{
    const attn__canonical *canonical = b->canonical;
    const attn__blocked_places *at = &b->plan->at;
    attn_dtype dtype = attn__operand_dtype(&canonical->problem, ATTN__OP_SINKS);
    for (int64_t i = 0; i < t->queries; i++) {
        double sink = -(double)INFINITY;
        if (canonical->extras & ATTN__SINKS)
            sink = attn__load(dtype, b->arrays->sinks, attn__blocked_offset(b, ATTN__STRIDE(dim.sinks), t->query + i));
        attn__blocked_at(b, at->max)[i] = is_softmax(b) ? sink : 0;
        attn__blocked_at(b, at->sum)[i] = sink > -(double)INFINITY || sink != sink;
        attn__blocked_at(b, at->count)[i] = 0;
    }
}

void attn__blocked_softmax_step(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, double *s, double *o)
{
    const attn__rows_f64_kernel *kernel = b->plan->kernel;
    double *max = attn__blocked_at(b, b->plan->at.max) + i, *sum = attn__blocked_at(b, b->plan->at.sum) + i;
    for (int64_t j = 0; j < t->pairs && !is_softmax(b); j++)
        *sum += s[j];
    if (!is_softmax(b))
        return;
    double most = kernel->largest(s, t->pairs);
    if (most <= *max)
        most = *max;
    if (most == -(double)INFINITY) { /* no key so far */
        memset(s, 0, (size_t)t->pairs * sizeof *s);
        return;
    }
    if (most != *max) {
        double factor = *max == -(double)INFINITY ? 0 : exp(*max - most);
        *sum *= factor;
        if (o)
            kernel->scale(o, b->canonical->value.size, factor);
        *max = most;
    }
    *sum += kernel->exponentials(s, t->pairs, most);
}

void attn__blocked_drop(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, double *x)
{
    const attn__canonical *canonical = b->canonical;
    const attn_problem *p = &canonical->problem;
    if (!canonical->has_dropout)
        return;
    const int64_t *column = attn__blocked_integers(b, b->plan->at.drop_at);
    uint64_t row = (uint64_t)attn__blocked_offset(b, ATTN__STRIDE(drop), t->query + i);
    uint64_t key =
        attn__dropout_key(p->seed + b->arrays->seed_offset, p->stream, attn__drop_row(&b->arrays->drop_rows, row));
    uint32_t threshold = attn__dropout_threshold(p->dropout);
    double factor = 1 / (1 - p->dropout);
    for (int64_t j = 0; j < t->pairs; j++)
        x[j] = attn__dropout_bits(key, (uint32_t)column[j]) < threshold ? 0 : x[j] * factor;
}
