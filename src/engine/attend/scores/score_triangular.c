/* SPDX-License-Identifier: MIT
 * The score falls linearly with the distance and is 0 from the width on. Dive into Deep Learning calls it
 * Epanechnikov. */
#include "attend/scores/score.h"

#include <math.h>

static double value(const attn__score_rows *r)
{
    double height = 1 - sqrt(attn__distance2(r)) / r->width;
    return height <= 0 ? 0 : height;
}

/* Adds the derivative, or 0 at the distances 0 and width, which have no derivative. NaN stays NaN. */
static void gradient(const attn__score_rows *r, double g, const attn__score_slopes *to)
{
    double distance = sqrt(attn__distance2(r));
    bool slopes = distance > 0 && distance < r->width;
    attn__add_difference(r, g * (slopes ? -1 / (distance * r->width) : distance * 0), to);
}

const attn__score_kind attn__score_triangular = {
    .name = "triangular",
    .value = value,
    .gradient = gradient,
};
