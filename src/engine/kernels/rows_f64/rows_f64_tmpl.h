/* SPDX-License-Identifier: MIT
 *
 * rows_f64_tmpl.h - rows of double for one instruction set; see rows_f64.h.  Operations that vec_f64.h does not have
 * use operators of the compiler's vector types.
 */
#include "simd/vec_f64.h"

enum { ROWS_QUERIES = 4, ROWS_KEYS = 2 }; /* queries, and vectors of keys, of a tile of distances */

/* integers as wide as the lanes of vd; comparisons of vd have this type */
typedef int64_t vl __attribute__((vector_size(sizeof(vd))));

VF_FN vd rows_load(const double *p, int64_t n)
{
    return n >= VD_LANES ? vd_load(p) : vd_load_part(p, (int)n);
}

VF_FN void rows_store(double *p, vd x, int64_t n)
{
    if (n >= VD_LANES)
        vd_store(p, x);
    else
        vd_store_part(p, x, (int)n);
}

VF_FN vd rows_select(vl mask, vd a, vd b)
{
    return (vd)(((vl)a & mask) | ((vl)b & ~mask));
}

/* Parts of e^x = power * (1 + r y). x = n ln 2 + r with |r| <= ln 2 / 2, and power = 2^n. The series of y ends at r^13,
 * and the omitted rest is below 2^-57. */
typedef struct rows_parts {
    vd r, y, power;
} rows_parts;

VF_FN rows_parts rows_exp_parts(vd x)
{
    const vd shift = vd_set1(0x1.8p52);
    vd shifted = vd_fma(x, vd_set1(0x1.71547652b82fep0), shift), n = shifted - shift;
    vd r = vd_fma(n, vd_set1(-0x1.a39ef35793c76p-33), vd_fma(n, vd_set1(-0x1.62e42feep-1), x));
    vd y = vd_set1(1.0 / 6227020800);
    y = vd_fma(y, r, vd_set1(1.0 / 479001600));
    y = vd_fma(y, r, vd_set1(1.0 / 39916800));
    y = vd_fma(y, r, vd_set1(1.0 / 3628800));
    y = vd_fma(y, r, vd_set1(1.0 / 362880));
    y = vd_fma(y, r, vd_set1(1.0 / 40320));
    y = vd_fma(y, r, vd_set1(1.0 / 5040));
    y = vd_fma(y, r, vd_set1(1.0 / 720));
    y = vd_fma(y, r, vd_set1(1.0 / 120));
    y = vd_fma(y, r, vd_set1(1.0 / 24));
    y = vd_fma(y, r, vd_set1(1.0 / 6));
    y = vd_fma(y, r, vd_set1(0.5));
    y = vd_fma(y, r, vd_set1(1));
    return (rows_parts){r, y, (vd)(((vl)shifted + 1023) << 52)};
}

VF_FN vd rows_exp(vd x)
{
    rows_parts e = rows_exp_parts(x);
    return rows_select((vl)(x < vd_set1(-708)), vd_zero(), vd_fma(e.y, e.r, vd_set1(1)) * e.power);
}

/* Computes tanh(|x|) = m / (m + 2) with m = e^(2|x|) - 1. This formula is precise near 0. The error is a few units in
 * the last place. */
VF_FN vd rows_tanh(vd x)
{
    const vl sign = (vl)vd_set1(-0.0);
    vd most = vd_set1(40), twice = (vd)((vl)(x + x) & ~sign);
    twice = rows_select((vl)(twice > most), most, twice); /* NaN stays */
    rows_parts e = rows_exp_parts(twice);
    vd m = vd_fma(e.power, e.y * e.r, e.power - vd_set1(1));
    return (vd)((vl)(m / (m + vd_set1(2))) | ((vl)x & sign));
}

VF_FN double rows_sum(vd x)
{
    double lanes[VD_LANES], sum = 0;
    vd_store(lanes, x);
    for (int i = 0; i < VD_LANES; i++)
        sum += lanes[i];
    return sum;
}

static bool rows_finite(const double *x, int64_t n)
{
    vd sum = vd_zero(), more = vd_zero(); /* sums of x * 0, which are NaN if a number is not finite */
    for (int64_t i = 0; i < n; i += 2 * VD_LANES) {
        sum = vd_fma(rows_load(x + i, n - i), vd_zero(), sum);
        if (i + VD_LANES < n)
            more = vd_fma(rows_load(x + i + VD_LANES, n - i - VD_LANES), vd_zero(), more);
    }
    return rows_sum(sum + more) == 0;
}

static double rows_largest(const double *x, int64_t n)
{
    vd infinity = vd_set1((double)INFINITY), most = -infinity, nans = vd_zero();
    double lanes[VD_LANES], largest = -(double)INFINITY;
    int64_t i = 0;
    for (; i + VD_LANES <= n; i += VD_LANES) {
        vd y = vd_load(x + i);
        most = rows_select((vl)(y > most), y, most);
        nans = rows_select((vl)(y <= infinity), nans, y); /* NaN is not */
    }
    vd_store(lanes, most);
    for (int j = 0; j < VD_LANES; j++)
        largest = lanes[j] > largest ? lanes[j] : largest;
    double nan = rows_sum(nans);
    for (; i < n; i++) {
        nan += x[i] == x[i] ? 0 : x[i];
        largest = x[i] > largest ? x[i] : largest;
    }
    return nan == nan ? largest : nan;
}

/* Each lane has a partial sum. Lanes past n add 0, as masked elements do. */
static double rows_exponentials(double *x, int64_t n, double max)
{
    vd sum = vd_zero(), m = vd_set1(max);
    int64_t i = 0;
    for (; i + VD_LANES <= n; i += VD_LANES) {
        vd y = rows_exp(vd_load(x + i) - m);
        vd_store(x + i, y);
        sum = sum + y;
    }
    if (i < n) {
        double last[VD_LANES] = {0};
        rows_store(x + i, rows_exp(rows_load(x + i, n - i) - m), n - i);
        memcpy(last, x + i, (size_t)(n - i) * sizeof *last);
        sum = sum + vd_load(last);
    }
    return rows_sum(sum);
}

static void rows_scale(double *y, int64_t n, double by)
{
    for (int64_t i = 0; i < n; i += VD_LANES)
        rows_store(y + i, rows_load(y + i, n - i) * vd_set1(by), n - i);
}

static void rows_hide(double *x, const uint8_t *seen, int64_t n)
{
    typedef uint8_t bytes __attribute__((vector_size(VD_LANES)));
    vd none = vd_set1(-(double)INFINITY);
    int64_t i = 0;
    for (; i + VD_LANES <= n; i += VD_LANES) {
        bytes b;
        memcpy(&b, seen + i, sizeof b);
        vl sees = __builtin_convertvector(b, vl) != 0;
        vd_store(x + i, rows_select(sees, vd_load(x + i), none));
    }
    for (; i < n; i++)
        x[i] = seen[i] ? x[i] : none[0];
}

static void rows_gradients(double *x, double *dp, int64_t n, double lse, double delta, double least)
{
    for (int64_t i = 0; i < n; i += VD_LANES) {
        vd score = rows_load(x + i, n - i), log = score - vd_set1(lse);
        vd p = rows_exp(rows_select((vl)(log > vd_zero()), vd_zero(), log)); /* NaN stays */
        p = rows_select((vl)(p < vd_set1(least)), vd_zero(), p);
        vl masked = (vl)(score == vd_set1(-(double)INFINITY));
        vd d = rows_select(masked, vd_zero(), p * (rows_load(dp + i, n - i) - vd_set1(delta)));
        rows_store(x + i, p, n - i);
        rows_store(dp + i, d, n - i);
    }
}

typedef float rows_half __attribute__((vector_size(sizeof(vd) / 2)));

static void rows_widen(const float *x, int64_t n, double *y)
{
    int64_t i = 0;
    for (; i + VD_LANES <= n; i += VD_LANES) {
        rows_half h;
        memcpy(&h, x + i, sizeof h);
        vd_store(y + i, __builtin_convertvector(h, vd));
    }
    for (; i < n; i++)
        y[i] = (double)x[i];
}

static void rows_narrow(const double *x, int64_t n, float *y)
{
    const vl sign = (vl)vd_set1(-0.0);
    int64_t i = 0;
    for (; i + VD_LANES <= n; i += VD_LANES) {
        vd a = vd_load(x + i), size = (vd)((vl)a & ~sign);
        vl small = (vl)(size < vd_set1(0x1p-126)) & (vl)(size > vd_zero());
        rows_half h = __builtin_convertvector(rows_select(small, vd_zero(), a), rows_half);
        memcpy(y + i, &h, sizeof h);
    }
    for (; i < n; i++)
        y[i] = x[i] < 0x1p-126 && x[i] > -0x1p-126 && x[i] != 0 ? 0.0f : (float)x[i];
}

/* Computes the distances of `queries` queries to `vectors` vectors of keys. Both are constants after inlining. Each
 * pair has its own chain of multiply-adds, and each load is used for several pairs. */
VF_FN void rows_distances_of(const attn__rows_f64_distances *t, int64_t query, int64_t key, int queries, int vectors)
{
    vd sum[ROWS_QUERIES][ROWS_KEYS];
    const double *q = t->q + query * t->ldq, *k = t->k + key;
    int64_t n = vectors == 1 ? t->n - key : vectors * VD_LANES;
    VF_UNROLL
    for (int i = 0; i < queries * vectors; i++)
        sum[i / vectors][i % vectors] = vd_zero();
    for (int64_t c = 0; c < t->channels; c++, k += t->ld) {
        VF_UNROLL
        for (int v = 0; v < vectors; v++) {
            vd x = rows_load(k + v * VD_LANES, n - v * VD_LANES);
            VF_UNROLL
            for (int i = 0; i < queries; i++) {
                vd d = vd_set1(q[i * t->ldq + c]) - x;
                sum[i][v] = vd_fma(d, d, sum[i][v]);
            }
        }
    }
    VF_UNROLL
    for (int i = 0; i < queries * vectors; i++)
        rows_store(t->y + (query + i / vectors) * t->ldy + key + i % vectors * VD_LANES, sum[i / vectors][i % vectors],
                   n - i % vectors * VD_LANES);
}

VF_FN void rows_distances_to(const attn__rows_f64_distances *t, int64_t query, int queries)
{
    int64_t key = 0;
    for (; key + ROWS_KEYS * VD_LANES <= t->n; key += ROWS_KEYS * VD_LANES)
        rows_distances_of(t, query, key, queries, ROWS_KEYS);
    for (; key < t->n; key += VD_LANES)
        rows_distances_of(t, query, key, queries, 1);
}

static void rows_distances(const attn__rows_f64_distances *t)
{
    int64_t i = 0;
    for (; i + ROWS_QUERIES <= t->queries; i += ROWS_QUERIES)
        rows_distances_to(t, i, ROWS_QUERIES);
    for (; i < t->queries; i++)
        rows_distances_to(t, i, 1);
}

static double rows_additive(const double *q, const double *k, const double *w, int64_t n, double *t)
{
    vd sum = vd_zero();
    for (int64_t i = 0; i < n; i += VD_LANES) {
        vd x = rows_tanh(rows_load(q + i, n - i) + rows_load(k + i, n - i));
        rows_store(t + i, x, n - i);
        sum = vd_fma(rows_load(w + i, n - i), x, sum);
    }
    return rows_sum(sum);
}

static void rows_additive_gradient(double g, const double *w, const double *t, int64_t n, double *dq, double *dk,
                                   double *dw)
{
    const vd slope = vd_set1(g), one = vd_set1(1);
    for (int64_t i = 0; i < n; i += VD_LANES) {
        vd x = rows_load(t + i, n - i), d = slope * rows_load(w + i, n - i) * (one - x * x);
        rows_store(dq + i, rows_load(dq + i, n - i) + d, n - i);
        rows_store(dk + i, rows_load(dk + i, n - i) + d, n - i);
        rows_store(dw + i, vd_fma(slope, x, rows_load(dw + i, n - i)), n - i);
    }
}

/* Computes gradients of one channel, for `queries` queries and n keys. `queries` is a constant after inlining, and n is
 * at most a vector. The gradient of q is added to sum[i]. */
VF_FN void rows_distance_slopes(const attn__rows_f64_distances *t, int64_t query, int queries, int64_t c, int64_t key,
                                int64_t n, vd *sum)
{
    double *to = t->dk + c * t->lddk + key;
    vd x = rows_load(t->k + c * t->ld + key, n), dk = rows_load(to, n);
    VF_UNROLL
    for (int i = 0; i < queries; i++) {
        vd slope = rows_load(t->y + (query + i) * t->ldy + key, n);
        vd d = slope * (vd_set1(t->q[(query + i) * t->ldq + c]) - x);
        d = rows_select((vl)((vl)slope == (vl)vd_set1(-0.0)), vd_zero(), d);
        if (n < VD_LANES) { /* lanes past n may hold NaN */
            double part[VD_LANES];
            vd_store(part, d);
            d = rows_load(part, n);
        }
        sum[i] = sum[i] + d;
        dk = dk - d;
    }
    rows_store(to, dk, n);
}

VF_FN void rows_distance_gradient_of(const attn__rows_f64_distances *t, int64_t query, int queries)
{
    for (int64_t c = 0; c < t->channels; c++) {
        vd sum[ROWS_QUERIES];
        int64_t key = 0;
        VF_UNROLL
        for (int i = 0; i < queries; i++)
            sum[i] = vd_zero();
        for (; key + VD_LANES <= t->n; key += VD_LANES)
            rows_distance_slopes(t, query, queries, c, key, VD_LANES, sum);
        if (key < t->n)
            rows_distance_slopes(t, query, queries, c, key, t->n - key, sum);
        for (int i = 0; i < queries; i++)
            t->dq[(query + i) * t->lddq + c] += rows_sum(sum[i]);
    }
}

static void rows_distance_gradient(const attn__rows_f64_distances *t)
{
    int64_t i = 0;
    for (; i + ROWS_QUERIES <= t->queries; i += ROWS_QUERIES)
        rows_distance_gradient_of(t, i, ROWS_QUERIES);
    for (; i < t->queries; i++)
        rows_distance_gradient_of(t, i, 1);
}

const attn__rows_f64_kernel VF_NAME(attn__rows_f64) = {.isa = VF_ISA,
                                                       .finite = rows_finite,
                                                       .largest = rows_largest,
                                                       .exponentials = rows_exponentials,
                                                       .scale = rows_scale,
                                                       .hide = rows_hide,
                                                       .gradients = rows_gradients,
                                                       .widen = rows_widen,
                                                       .narrow = rows_narrow,
                                                       .distances = rows_distances,
                                                       .additive = rows_additive,
                                                       .additive_gradient = rows_additive_gradient,
                                                       .distance_gradient = rows_distance_gradient};
