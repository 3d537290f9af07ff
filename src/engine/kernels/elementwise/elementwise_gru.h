/* SPDX-License-Identifier: MIT
 *
 * elementwise_gru.h - the gates of a recurrent unit: h' = (1 - z) n + z h, with n = tanh(x_n + r (W h + b)_n).
 */
static void gru_row(const attn__elementwise_args *a, int64_t row)
{
    int64_t n = a->n;
    const real *x = (const real *)a->x + 3 * row * n, *u = (const real *)a->x2 + 3 * row * n, *b = a->x3;
    const real *h = a->x4 ? (const real *)a->x4 + row * n : NULL;
    real *y = (real *)a->y + row * n, *gates = a->y2 ? (real *)a->y2 + 3 * row * n : NULL;
    for (int64_t i = 0; i < n; i += VF_LANES) {
        int64_t left = n - i;
        vf r =
            vf_add(elementwise_load(x + i, left), vf_add(elementwise_load(u + i, left), elementwise_load(b + i, left)));
        vf z = vf_add(elementwise_load(x + n + i, left),
                      vf_add(elementwise_load(u + n + i, left), elementwise_load(b + n + i, left)));
        vf hidden = vf_add(elementwise_load(u + 2 * n + i, left), elementwise_load(b + 2 * n + i, left));
        r = normal_of(sigmoid_of(r));
        z = normal_of(sigmoid_of(z));
        vf candidate = tanh_of(vf_fma(r, hidden, elementwise_load(x + 2 * n + i, left)));
        vf old = h ? elementwise_load(h + i, left) : vf_zero();
        store(y + i, left, vf_fma(z, vf_sub(old, candidate), candidate));
        if (gates) {
            store(gates + i, left, r);
            store(gates + n + i, left, z);
            store(gates + 2 * n + i, left, candidate);
            store((real *)a->y3 + row * n + i, left, hidden);
        }
    }
}

static void run_gru(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++)
        gru_row(a, row);
}

static void gru_backward_row(const attn__elementwise_args *a, int64_t row)
{
    int64_t n = a->n;
    const real *x = (const real *)a->x + row * n, *gates = (const real *)a->x2 + 3 * row * n;
    const real *hidden = (const real *)a->x3 + row * n, *h = a->x4 ? (const real *)a->x4 + row * n : NULL;
    real *y = (real *)a->y + 3 * row * n, *y2 = (real *)a->y2 + row * n, *y3 = (real *)a->y3 + row * n;
    vf one = constant(1);
    for (int64_t i = 0; i < n; i += VF_LANES) {
        int64_t left = n - i;
        vf d = elementwise_load(x + i, left), r = elementwise_load(gates + i, left),
           z = elementwise_load(gates + n + i, left);
        vf candidate = elementwise_load(gates + 2 * n + i, left), u = elementwise_load(hidden + i, left);
        vf old = h ? elementwise_load(h + i, left) : vf_zero();
        vf dn = vf_mul(vf_mul(d, vf_sub(one, z)), vf_fnma(candidate, candidate, one));
        vf dz = vf_mul(vf_mul(d, vf_sub(old, candidate)), vf_mul(z, vf_sub(one, z)));
        vf dr = vf_mul(vf_mul(dn, u), vf_mul(r, vf_sub(one, r)));
        store(y + i, left, dr);
        store(y + n + i, left, dz);
        store(y + 2 * n + i, left, dn);
        store(y2 + i, left, vf_mul(dn, r));
        store(y3 + i, left, vf_mul(d, z));
    }
}

static void run_gru_backward(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++)
        gru_backward_row(a, row);
}
