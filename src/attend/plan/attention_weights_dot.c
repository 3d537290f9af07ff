/* SPDX-License-Identifier: MIT
 * Dot products in f32 with sixteen partial sums, so that the compiler can vectorize them. */
#include "attend/plan/attention_weights_dot.h"

enum { LANES = 16 };

bool attn__dot_applies(const attn__canonical *canonical)
{
    const attn_problem *p = &canonical->problem;
    const attn_dim *last = &canonical->contract.axis[canonical->contract.n - 1].dim;
    return p->score == ATTN_SCORE_DOT && p->dtype == ATTN_F32 && p->nrelatives == 0 && p->softcap == 0 &&
           last->q == 1 && last->k == 1;
}

static double dot(const float *a, const float *b, int64_t n)
{
    float sums[LANES] = {0};
    int64_t whole = n / LANES * LANES;
    for (int64_t c = 0; c < whole; c += LANES)
        for (int lane = 0; lane < LANES; lane++)
            sums[lane] += a[c + lane] * b[c + lane];
    double sum = 0;
    for (int lane = 0; lane < LANES; lane++)
        sum += (double)sums[lane];
    for (int64_t c = whole; c < n; c++)
        sum += (double)a[c] * (double)b[c];
    return sum;
}

double attn__dot_score(const attn__row *row, const attn__spot *spot)
{
    const attn__canonical *canonical = row->canonical;
    const attn__group *group = &canonical->contract;
    const float *q = (const float *)row->arrays->q + row->offset[ATTN__OP_Q];
    const float *k = (const float *)row->arrays->k + spot->offset[ATTN__OP_K];
    int64_t inner = group->axis[group->n - 1].dim.n, runs = inner ? group->size / inner : 0;
    double sum = 0;
    for (int64_t run = 0; run < runs; run++) {
        int64_t rest = run, at_q = 0, at_k = 0;
        for (int i = group->n - 2; i >= 0; i--) {
            const attn_dim *dim = &group->axis[i].dim;
            at_q += rest % dim->n * dim->q;
            at_k += rest % dim->n * dim->k;
            rest /= dim->n;
        }
        sum += dot(q + at_q, k + at_k, inner);
    }
    if (canonical->has_bias)
        return canonical->problem.scale * sum + (double)((const float *)row->arrays->bias)[spot->offset[ATTN__OP_BIAS]];
    return canonical->problem.scale * sum;
}
