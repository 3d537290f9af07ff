/* SPDX-License-Identifier: MIT
 *
 * elementwise_lookup.h - rows of a table by index, and their gradients.  Several uses of one row are added in the
 * order of the uses: threads share out the columns, not the uses.
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

static void run_embed_backward(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
    vf scale = constant(a->s[0]);
    for (int64_t row = 0; row < a->rows; row++)
        add_scaled((real *)a->y + a->ids[row] * a->n + begin, (const real *)a->x + row * a->n + begin, scale,
                   end - begin);
}

static void run_position_backward(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
    vf one = constant(1);
    for (int64_t row = 0; row < a->rows; row++)
        add_scaled((real *)a->y + (row % a->period + a->first) * a->n + begin, (const real *)a->x + row * a->n + begin,
                   one, end - begin);
}
