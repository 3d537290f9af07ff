/* SPDX-License-Identifier: MIT
 * The score is the logarithm of a Gaussian kernel of the distance. Its softmax is Nadaraya-Watson regression (1964). */
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
