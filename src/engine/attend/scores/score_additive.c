/* SPDX-License-Identifier: MIT
 * The additive score w . tanh(q + k) (Bahdanau et al. 2014, arXiv:1409.0473). */
#include "attend/scores/score.h"

#include <math.h>

static double value(const attn__score_rows *r)
{
    double sum = 0;
    for (int64_t c = 0; c < r->n; c++)
        sum += r->w[c] * tanh(r->q[c] + r->k[c]);
    return sum;
}

static void gradient(const attn__score_rows *r, double g, const attn__score_slopes *to)
{
    for (int64_t c = 0; c < r->n; c++) {
        double t = tanh(r->q[c] + r->k[c]), d = g * r->w[c] * (1 - t * t);
        to->q[c] += d;
        to->k[c] += d;
        to->w[c] += g * t;
    }
}

const attn__score_kind attn__score_additive = {
    .name = "additive",
    .vectors = 1,
    .value = value,
    .gradient = gradient,
};
