/* SPDX-License-Identifier: MIT
 * The concatenation score, relu(w . q + w2 . k) (Wang et al. 2018, arXiv:1711.07971). */
#include "attend/scores/score.h"

static double sum(const attn__score_rows *r)
{
    return attn__dot_channels(r->w, r->q, r->n) + attn__dot_channels(r->w2, r->k, r->n);
}

static double value(const attn__score_rows *r)
{
    double x = sum(r);
    return x <= 0 ? 0 : x; /* NaN stays NaN */
}

static void gradient(const attn__score_rows *r, double g, const attn__score_slopes *to)
{
    if (sum(r) <= 0)
        return;
    attn__add_channels(to->q, g, r->w, r->n);
    attn__add_channels(to->k, g, r->w2, r->n);
    attn__add_channels(to->w, g, r->q, r->n);
    attn__add_channels(to->w2, g, r->k, r->n);
}

const attn__score_kind attn__score_concat = {
    .name = "concat",
    .vectors = 2,
    .value = value,
    .gradient = gradient,
};
