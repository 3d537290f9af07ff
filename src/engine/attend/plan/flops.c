/* SPDX-License-Identifier: MIT
 * Counts floating-point operations and measures how many the machine can do.  A pair of a query and a key counts as 2
 * operations per channel forward and 5 backward. A pair that bands or windows exclude does not count. */
#include "attend/plan/plan.h"

#include "attend/problem/operand.h"
#include "base/parallel.h"
#include "kernels/fma_peak/fma_peak.h"

/* Returns the number of pairs (i, j) with 0 <= i < queries, 0 <= j < keys and j - i <= h. */
static double pairs_below(double queries, double keys, double h)
{
    double first = -h - 1 > 0 ? -h - 1 : 0;                    /* row i has no pairs if i < first */
    double full = keys - 1 - h > first ? keys - 1 - h : first; /* row i has all keys if i >= full */
    first = first < queries ? first : queries;
    full = full < queries ? full : queries;
    double rows = full - first;
    return rows * (first + h + 1) + rows * (rows - 1) / 2 + (queries - full) * keys;
}

static double clamp(int64_t x, double most)
{
    return (double)x > most ? most : (double)x < -most ? -most : (double)x;
}

static double band_share(const attn__canonical *canonical, const attn_band *band)
{
    double queries = (double)canonical->query.axis[band->query_dim].dim.n,
           keys = (double)canonical->key.axis[band->key_dim].dim.n;
    double most = queries + keys, low = clamp(band->lo, most), high = clamp(band->hi, most);
    if (queries * keys == 0 || low > high)
        return 0;
    return (pairs_below(queries, keys, high) - pairs_below(queries, keys, low - 1)) / (queries * keys);
}

/* Returns the number of queries whose tap at distance d is inside of the axis. */
static double queries_inside(const attn_window *w, double queries, int64_t d)
{
    if (w->border != ATTN_BORDER_MASK)
        return queries;
    int64_t low = d < 0 ? (-d + w->step - 1) / w->step : 0, high = w->size - 1 - d;
    high = high < 0 ? -1 : high / w->step;
    double end = (double)high + 1 < queries ? (double)high + 1 : queries;
    return end > (double)low ? end - (double)low : 0;
}

static bool in_bands(const attn__canonical *canonical, const attn_window *w, int64_t d)
{
    const attn_problem *p = &canonical->problem;
    for (int i = 0; i < p->nbands; i++)
        if (p->bands[i].key_dim == w->key_dim && (d < p->bands[i].lo || d > p->bands[i].hi))
            return false;
    return true;
}

static double window_share(const attn__canonical *canonical, const attn_window *w)
{
    double queries = (double)canonical->query.axis[w->query_dim].dim.n, pairs = 0;
    int64_t taps = canonical->key.axis[w->key_dim].dim.n;
    for (int64_t t = 0; t < taps; t++) {
        int64_t d = w->offset + t * w->dilation;
        if (in_bands(canonical, w, d))
            pairs += queries_inside(w, queries, d);
    }
    return pairs > 0 ? pairs / (queries * (double)taps) : 0;
}

double attn_plan_flops(const attn_plan *plan)
{
    const attn__canonical *canonical = &plan->canonical;
    const attn_problem *p = &canonical->problem;
    double pairs = (double)canonical->batch.size * (double)canonical->query.size * (double)canonical->key.size;
    if (pairs > 0 && (canonical->extras & ATTN__PACKED)) {
        double sequences = (double)canonical->batch.axis[p->packed.batch_dim].dim.n;
        pairs *= (double)p->packed.queries / sequences / (double)canonical->query.axis[p->packed.query_dim].dim.n;
        pairs *= (double)p->packed.keys / sequences / (double)canonical->key.axis[p->packed.key_dim].dim.n;
    }
    for (int i = 0; i < p->nwindows; i++)
        pairs *= window_share(canonical, &p->windows[i]);
    for (int i = 0; i < p->nbands; i++)
        if (!attn__window_of(p, p->bands[i].key_dim))
            pairs *= band_share(canonical, &p->bands[i]);
    return 2 * pairs * (double)(canonical->contract.size + canonical->value.size) * (canonical->backward ? 2.5 : 1);
}

double attn_machine_peak(attn_context *context, attn_dtype dtype, int threads)
{
    ATTN__CALL(context);
    if (dtype != ATTN_F32 && dtype != ATTN_BF16) {
        attn__fail(context, ATTN_ERROR_ARGUMENT, "the peak can be measured for f32 and bf16, not for %s",
                   attn_dtype_name(dtype));
        return 0;
    }
    if (threads < 0 || threads > ATTN__MAX_THREADS) {
        attn__fail(context, ATTN_ERROR_ARGUMENT, "threads is %d; it must be 0 to %d", threads, ATTN__MAX_THREADS);
        return 0;
    }
    return attn__fma_peak_gflops(context->isa, threads ? threads : context->threads, 0);
}
