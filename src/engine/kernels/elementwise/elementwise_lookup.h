/* SPDX-License-Identifier: MIT
 *
 * elementwise_lookup.h - looks up rows of a table by index, and adds up the gradients of the rows. The gradients of a
 * row are added in the order in which the row is used, because threads divide the columns of the table, not the uses.
 */
static void run_embed(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
    int64_t n = a->n;
    vf scale = constant(a->s[0]);
    for (int64_t row = begin; row < end; row++) {
        const real *x = (const real *)a->x + a->ids[row] * n;
        const real *position = a->x2 ? (const real *)a->x2 + (row % a->period + a->first) * n : NULL;
        real *y = (real *)a->y + row * n;
        for (int64_t i = 0; i < n; i += VF_LANES) {
            vf v = vf_mul(scale, elementwise_load(x + i, n - i));
            store(y + i, n - i, position ? vf_add(v, elementwise_load(position + i, n - i)) : v);
        }
    }
}

VF_FN void add_scaled(real *y, const real *x, vf scale, int64_t n)
{
    for (int64_t i = 0; i < n; i += VF_LANES)
        store(y + i, n - i, vf_fma(scale, elementwise_load(x + i, n - i), elementwise_load(y + i, n - i)));
}

static void move_row(double *sum, real *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        sum[i] += (double)y[i];
        y[i] = 0;
    }
}

static void run_embed_backward(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
    vf scale = constant(a->s[0]);
    const int32_t *moves = a->x2, *owners = a->x3;
    double *sums = a->y2;
    for (int64_t row = 0; row < a->rows; row++) {
        real *y = (real *)a->y + a->ids[row] * a->n + begin;
        add_scaled(y, (const real *)a->x + row * a->n + begin, scale, end - begin);
        if (moves && moves[row] >= 0)
            move_row(sums + moves[row] * a->n + begin, y, end - begin);
    }
    for (int64_t s = 0; s < a->period; s++) {
        real *y = (real *)a->y + owners[s] * a->n;
        for (int64_t i = begin; i < end; i++)
            y[i] = (real)(sums[s * a->n + i] + (double)y[i]);
    }
}
