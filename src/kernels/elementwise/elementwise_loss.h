/* SPDX-License-Identifier: MIT
 *
 * elementwise_loss.h - cross-entropy over the classes of a row, with label smoothing, and the divergence of two rows.
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
        real *loss = (real *)a->y + row, *lse = (real *)a->y2 + row;
        *loss = *lse = 0;
        if (!counts(a, row))
            continue;
        const real *x = (const real *)a->x + row * n;
        real most = largest_of(x, n);
        real shift = (real)log((double)exponentials(x, NULL, n, most));
        *lse = most + shift;
        /* Subtracts the largest score first: it may be large, and the differences are small. */
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
        vf lse = vf_set1(((const real *)a->x2)[row]), factor = constant(scale);
        vf even = constant(-scale * smooth / (double)n);
        for (int64_t i = 0; i < n; i += VF_LANES)
            store(y + i, n - i, vf_fma(factor, exp_of(vf_sub(elementwise_load(x + i, n - i), lse)), even));
        y[a->ids[row]] -= (real)(scale * (1 - smooth));
    }
}

static void run_divergence(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
    int64_t n = a->n;
    for (int64_t row = begin; row < end; row++) {
        real *sums = (real *)a->y2 + 4 * row, *loss = (real *)a->y + row;
        *loss = sums[0] = sums[1] = sums[2] = sums[3] = 0;
        if (!counts(a, row))
            continue;
        const real *x[2] = {(const real *)a->x + row * n, (const real *)a->x + (a->rows + row) * n};
        for (int i = 0; i < 2; i++) {
            real most = largest_of(x[i], n);
            sums[i] = most + (real)log((double)exponentials(x[i], NULL, n, most));
        }
        vf lse = vf_set1(sums[0]), lse2 = vf_set1(sums[1]), forth = vf_zero(), back = vf_zero();
        for (int64_t i = 0; i < n; i += VF_LANES) {
            vf log_p = vf_sub(elementwise_load(x[0] + i, n - i), lse);
            vf log_q = vf_sub(elementwise_load(x[1] + i, n - i), lse2), d = vf_sub(log_p, log_q);
            forth = vf_add(forth, only_first(n - i, vf_mul(exp_of(log_p), d), vf_zero()));
            back = vf_sub(back, only_first(n - i, vf_mul(exp_of(log_q), d), vf_zero()));
        }
        sums[2] = vf_sum(forth);
        sums[3] = vf_sum(back);
        *loss = (sums[2] + sums[3]) / 2;
    }
}

/* With d = log p - log q, the gradient of sum (p - q) d by p's logits is p (d - KL(p||q)) + p - q. */
static void run_divergence_backward(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
    int64_t n = a->n;
    vf half = constant(a->s[1] / 2);
    for (int64_t row = begin; row < end; row++) {
        const real *x[2] = {(const real *)a->x + row * n, (const real *)a->x + (a->rows + row) * n};
        real *y[2] = {(real *)a->y + row * n, (real *)a->y + (a->rows + row) * n};
        const real *sums = (const real *)a->x2 + 4 * row;
        vf lse = vf_set1(sums[0]), lse2 = vf_set1(sums[1]), forth = vf_set1(sums[2]), back = vf_set1(sums[3]);
        bool counted = counts(a, row);
        for (int64_t i = 0; i < n; i += VF_LANES) {
            vf log_p = vf_sub(elementwise_load(x[0] + i, n - i), lse);
            vf log_q = vf_sub(elementwise_load(x[1] + i, n - i), lse2), d = vf_sub(log_p, log_q);
            vf p = exp_of(log_p), q = exp_of(log_q), apart = vf_sub(p, q);
            vf dp = vf_mul(half, vf_fma(p, vf_sub(d, forth), apart));
            vf dq = vf_mul(half, vf_sub(vf_mul(q, vf_sub(vf_sub(vf_zero(), d), back)), apart));
            store(y[0] + i, n - i, counted ? dp : vf_zero());
            store(y[1] + i, n - i, counted ? dq : vf_zero());
        }
    }
}
