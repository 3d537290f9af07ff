/* SPDX-License-Identifier: MIT
 * The logarithm of the Gaussian kernel of the distance, so that softmax is Nadaraya and Watson's regression (1964). */
#include "attend/scores/score.h"

static double value(const attn__score_rows *r)
{
    return -attn__distance2(r) / (2 * r->width * r->width);
}

static void gradient(const attn__score_rows *r, double g, const attn__score_slopes *to)
{
    attn__add_difference(r, -g / (r->width * r->width), to);
}

const attn__score_kind attn__score_gaussian = {
    .name = "gaussian",
    .value = value,
    .gradient = gradient,
};
