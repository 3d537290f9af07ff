/* SPDX-License-Identifier: MIT
 *
 * elementwise_loss.h - cross-entropy over the classes of a row, with label smoothing.
 */
VF_FN bool counts(const attn__elementwise_args *a, int64_t row)
{
    return !a->has_ignore || a->ids[row] != a->ignore;
}

static void run_cross_entropy(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
    int64_t n = a->n;
    real smooth = (real)a->s[0];
    for (int64_t row = begin; row < end; row++) {
        real *loss = (real *)a->y + row, most = 0, shift = 0;
        const real *x = (const real *)a->x + row * n;
        bool counted = counts(a, row);
        if (counted) {
            most = largest_of(x, n);
            shift = (real)log((double)exponentials(x, NULL, n, most));
        }
        *loss = 0;
        if (a->y2)
            ((real *)a->y2)[row] = most + shift;
        if (a->y3) {
            ((real *)a->y3)[2 * row] = most;
            ((real *)a->y3)[2 * row + 1] = shift;
        }
        if (!counted)
            continue;
        /* subtracts the largest score first, because scores may be large and their differences small */
        *loss = (1 - smooth) * ((most - x[a->ids[row]]) + shift);
        if (smooth != 0)
            *loss += smooth * ((most - row_total(x, n) / (real)n) + shift);
    }
}

static void run_cross_entropy_backward(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
    int64_t n = a->n;
    double smooth = a->s[0], scale = a->s[1];
    for (int64_t row = begin; row < end; row++) {
        const real *x = (const real *)a->x + row * n;
        real *y = (real *)a->y + row * n;
        if (!counts(a, row)) {
            for (int64_t i = 0; i < n; i++)
                y[i] = 0;
            continue;
        }
        const real *parts = (const real *)a->x2 + 2 * row;
        vf most = vf_set1(parts[0]), shift = vf_set1(parts[1]), factor = constant(scale);
        vf even = constant(-scale * smooth / (double)n), least = constant(REAL_MIN / fabs(scale));
        for (int64_t i = 0; i < n; i += VF_LANES) {
            vf below = vf_sub(elementwise_load(x + i, n - i), most), p = exp_of(vf_sub(below, shift));
            p = vf_below(p, least, p); /* p below `least` becomes 0, because p * factor could be subnormal */
            store(y + i, n - i, vf_fma(factor, p, even));
        }
        y[a->ids[row]] -= (real)(scale * (1 - smooth));
    }
}
