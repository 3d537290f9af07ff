/* SPDX-License-Identifier: MIT */
#include "attend/block/finite.h"

#include "base/normal.h"

#include <string.h>

/* It multiplies each number by 0, since infinity and NaN times 0 are NaN. */
static bool is_finite(const float *x, int64_t n)
{
    float check = 0.0f;
    for (int64_t i = 0; i < n; i++)
        check += x[i] * 0.0f;
    return check == check;
}

int64_t attn__finite_clean(const float *x, int64_t ld, int64_t rows, int64_t n, float *clean, int64_t ld_clean,
                           int64_t *bad)
{
    int64_t found = 0;
    for (int64_t r = 0; r < rows; r++, x += ld, clean += ld_clean) {
        bool finite = is_finite(x, n);
        if (finite)
            memcpy(clean, x, (size_t)n * sizeof *x);
        else
            memset(clean, 0, (size_t)n * sizeof *x);
        bad[found] = r;
        found += !finite;
    }
    return found;
}

static void repair_row(const attn__finite_sums *t, int64_t r)
{
    const float *x = t->x + r * t->x_row;
    for (int64_t i = 0; i < t->outs; i++) {
        int64_t pair = i * t->w_out + r * t->w_row;
        if (!(t->alive[pair] & t->bit))
            continue;
        float weight = t->w[pair] * (t->out_factor ? t->factor * t->out_factor[i] : t->factor);
        float *out = t->out + (t->out_at ? t->out_at[i] : i * t->out_row);
        for (int64_t c = 0; c < t->channels; c++)
            out[c * t->out_channel] += weight * x[c];
    }
}

bool attn__finite_fades(const float *m, int64_t n, float fill, uint8_t *fades)
{
    bool any = false;
    for (int64_t i = 0; i < n; i++) {
        fades[i] = attn__normal(exp2f(fill - m[i])) == 0.0f;
        any = any || fades[i];
    }
    return any;
}

void attn__finite_repair(const attn__finite_sums *t, const int64_t *bad, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        repair_row(t, bad[i]);
}
