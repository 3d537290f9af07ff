/* SPDX-License-Identifier: MIT
 * The scaled dot product (Vaswani et al. 2017, arXiv:1706.03762). */
#include "attend/scores/score.h"

static double value(const attn__score_rows *r)
{
    return attn__dot_channels(r->q, r->k, r->n);
}

static void gradient(const attn__score_rows *r, double g, const attn__score_slopes *to)
{
    attn__add_channels(to->q, g, r->k, r->n);
    attn__add_channels(to->k, g, r->q, r->n);
}

const attn__score_kind attn__score_dot = {
    .name = "dot",
    .by_root = true,
    .value = value,
    .gradient = gradient,
};
