/* SPDX-License-Identifier: MIT
 * Additive biases of windows, and their gradient: element by element, but for one that is the same for all lanes. */
#include "attend/solve/window_solver.h"

#include "attend/problem/operand.h"
#include "base/constants.h"

typedef struct walk {
    int64_t lane, tap; /* strides */
} walk;

static walk walk_of(const attn__window_work *work, attn__operand op)
{
    const attn__window_axis *axis = &work->plan->axis[work->plan->naxes - 1];
    return (walk){attn__stride(&work->canonical->query.axis[axis->query].dim, op),
                  attn__stride(&work->canonical->key.axis[axis->key].dim, op)};
}

/* Offset from the pair's bias for entry (pair, k) at lane w, or false if the lane takes no part there. */
static bool find(const attn__window_work *work, const walk *x, int64_t k, int64_t w, int64_t *offset)
{
    int64_t tap = work->now.first + k * work->stride;
    int64_t at = work->s.entries.range[k] + work->cell + w;
    if (tap < work->s.ranges.from[at] || tap >= work->s.ranges.to[at])
        return false;
    *offset = work->s.ranges.query[at] * x->lane + (tap - work->s.ranges.moved[at]) * x->tap;
    return true;
}

void attn__window_bias_add(attn__window_work *work, float *s)
{
    const float *bias = work->arrays->bias;
    walk x = walk_of(work, ATTN__OP_BIAS);
    int64_t width = work->plan->taps->width, offset;
    for (int64_t p = 0; p < work->pairs; p++)
        for (int64_t k = 0; k < work->now.n; k++, s += width)
            for (int64_t w = 0; w < work->lanes; w++)
                if (find(work, &x, k, w, &offset))
                    s[w] += (float)ATTN__LOG2E * bias[work->s.pair[p].bias + offset];
}

void attn__window_bias_gradient(attn__window_work *work, const float *ds)
{
    double *sums = work->sums.at[ATTN__SUM_BIAS];
    float *to = work->arrays->dbias;
    walk x = walk_of(work, ATTN__OP_DBIAS);
    int64_t width = work->plan->taps->width, offset;
    for (int64_t p = 0; p < work->pairs; p++)
        for (int64_t k = 0; k < work->now.n; k++, ds += width)
            for (int64_t w = 0; w < work->lanes; w++) {
                if (!find(work, &x, k, w, &offset))
                    continue;
                offset += work->s.pair[p].dbias;
                if (sums)
                    sums[offset] += (double)ds[w];
                else
                    to[offset] = work->canonical->problem.accumulate ? to[offset] + ds[w] : ds[w];
            }
}

/* Whether some element of the gradient is a sum over several pairs. */
bool attn__window_bias_shared(const attn__canonical *canonical)
{
    const attn__group *const groups[] = {&canonical->batch, &canonical->query, &canonical->key};
    for (int g = 0; g < 3; g++)
        for (int i = 0; i < groups[g]->n; i++)
            if (groups[g]->axis[i].dim.n > 1 && groups[g]->axis[i].dim.dbias == 0)
                return true;
    return false;
}
