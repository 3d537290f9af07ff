/* SPDX-License-Identifier: MIT
 *
 * rows_f64_tmpl.h - rows of double for one instruction set; see rows_f64.h.  What vec_f64.h lacks the compiler makes of
 * the vectors' operators.
 */
#include "simd/vec_f64.h"

typedef int64_t vl __attribute__((vector_size(sizeof(vd)))); /* of as many bits; also what comparisons give */

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

/* x = n ln 2 + r with |r| <= ln 2 / 2: e^r by its series to r^13, whose rest is below 2^-57, and 2^n by its bits. */
VF_FN vd rows_exp(vd x)
{
    const vd shift = vd_set1(0x1.8p52), least = vd_set1(-708);
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
    y = vd_fma(y, r, vd_set1(1));
    vl power = ((vl)shifted + 1023) << 52;
    return rows_select((vl)(x < least), vd_zero(), y * (vd)power);
}

VF_FN double rows_sum(vd x)
{
    double lanes[VD_LANES], sum = 0;
    vd_store(lanes, x);
    for (int i = 0; i < VD_LANES; i++)
        sum += lanes[i];
    return sum;
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

static double rows_exponentials(double *x, int64_t n, double max)
{
    vd sum = vd_zero(), m = vd_set1(max);
    int64_t i = 0;
    for (; i + VD_LANES <= n; i += VD_LANES) {
        vd y = rows_exp(vd_load(x + i) - m);
        vd_store(x + i, y);
        sum = sum + y;
    }
    double total = rows_sum(sum);
    for (; i < n; i++) {
        vd y = rows_exp(vd_set1(x[i]) - m);
        x[i] = y[0];
        total += y[0];
    }
    return total;
}

static void rows_scale(double *y, int64_t n, double by)
{
    for (int64_t i = 0; i < n; i += VD_LANES)
        rows_store(y + i, rows_load(y + i, n - i) * vd_set1(by), n - i);
}

static void rows_gradients(double *x, double *dp, int64_t n, double lse, double delta)
{
    for (int64_t i = 0; i < n; i += VD_LANES) {
        vd p = rows_exp(rows_load(x + i, n - i) - vd_set1(lse));
        vd d = p * (rows_load(dp + i, n - i) - vd_set1(delta));
        rows_store(x + i, p, n - i);
        rows_store(dp + i, d, n - i);
    }
}

static void rows_distances(const double *q, const double *k, int64_t ld, int64_t channels, double *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += VD_LANES) {
        vd sum = vd_zero();
        for (int64_t c = 0; c < channels; c++) {
            vd d = vd_set1(q[c]) - rows_load(k + c * ld + i, n - i);
            sum = vd_fma(d, d, sum);
        }
        rows_store(y + i, sum, n - i);
    }
}

const attn__rows_f64_kernel VF_NAME(attn__rows_f64) = {VF_ISA,     rows_largest,   rows_exponentials,
                                                       rows_scale, rows_gradients, rows_distances};
