/* SPDX-License-Identifier: MIT */
#include "attn/train.h"

#include <math.h>

double attn_schedule_rate(const attn_schedule *schedule, int64_t step)
{
    double warmup = (double)schedule->warmup, now = step > 0 ? (double)step : 0;
    if (now < warmup)
        return schedule->peak * now / warmup;
    switch (schedule->kind) {
    case ATTN_SCHEDULE_COSINE: {
        double length = (double)schedule->total - warmup;
        double done = length > 0 ? fmin(1, (now - warmup) / length) : now > warmup;
        double share = 0.5 * (1 + cos(3.14159265358979323846 * done));
        return schedule->peak * (schedule->floor + (1 - schedule->floor) * share);
    }
    case ATTN_SCHEDULE_INVERSE_SQUARE_ROOT:
        return schedule->peak * sqrt(fmax(warmup, 1) / fmax(now, 1));
    case ATTN_SCHEDULE_STEP:
        return schedule->peak * (step > schedule->total ? schedule->floor : 1);
    case ATTN_SCHEDULE_CONSTANT:
        break;
    }
    return schedule->peak;
}
