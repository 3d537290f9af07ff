/* SPDX-License-Identifier: MIT
 * The boxcar score is 1 for keys at a distance below the width, and 0 for others. */
#include "attend/scores/score.h"

#include <math.h>

static double value(const attn__score_rows *r)
{
    double distance = sqrt(attn__distance2(r));
    if (isnan(distance))
        return distance;
    return distance < r->width ? 1 : 0;
}

const attn__score_kind attn__score_boxcar = {
    .name = "boxcar",
    .value = value,
};
