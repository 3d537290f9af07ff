/* SPDX-License-Identifier: MIT
 *
 * elementwise_elements.h - elementwise operations: sums, activations, dropout, and the optimizer's update.
 */
static void run_add(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
    const real *x = a->x, *x2 = a->x2;
    real *y = a->y;
    for (int64_t i = begin; i < end; i += VF_LANES)
        store(y + i, end - i, vf_add(elementwise_load(x + i, end - i), elementwise_load(x2 + i, end - i)));
}

static void run_affine(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
    const real *x = a->x;
    real *y = a->y;
    vf scale = constant(a->s[0]), shift = constant(a->s[1]);
    for (int64_t i = begin; i < end; i += VF_LANES)
        store(y + i, end - i, vf_fma(elementwise_load(x + i, end - i), scale, shift));
}

static void run_round(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
#ifdef VF_DOUBLE
    (void)a, (void)begin, (void)end; /* does nothing, because doubles are never rounded to bf16 */
#else
    const real *x = a->x;
    real *y = a->y;
    for (int64_t i = begin; i < end; i += VF_LANES) {
        uint16_t rounded[VF_LANES];
        vf_store_bf16(rounded, elementwise_load(x + i, end - i));
        store(y + i, end - i, vf_load_bf16(rounded));
    }
#endif
}

/* Returns tanh(u) with u = sqrt(2/pi) (x + 0.044715 x^3), which the tanh form of GELU needs. Sets *slope to the
 * derivative of u, limited to finite numbers. */
VF_FN vf gelu_tanh_part(vf x, vf *slope)
{
    vf c = constant(0.79788456080286535588), square = vf_min(constant(1e30), vf_mul(x, x));
    vf u = vf_mul(vf_mul(c, x), vf_fma(constant(0.044715), square, constant(1)));
    *slope = vf_mul(c, vf_fma(constant(3 * 0.044715), square, constant(1)));
    return tanh_of(u);
}

VF_FN vf activated(vf x, int kind)
{
    vf half = constant(0.5), slope;
    switch (kind) {
    case ATTN__ACT_RELU: /* with this order of arguments, the maximum keeps a NaN */
        return vf_max(vf_zero(), x);
    case ATTN__ACT_LEAKY_RELU:
        return vf_select(vf_lt(x, vf_zero()), vf_mul(x, constant(0.01)), x);
    case ATTN__ACT_GELU_ERF:
        return vf_mul(x, normal_cdf(x));
    case ATTN__ACT_GELU_TANH:
        return vf_mul(vf_mul(half, x), vf_add(constant(1), gelu_tanh_part(x, &slope)));
    case ATTN__ACT_GELU_SIGMOID:
        return x_sigmoid_of(x, 1.702);
    case ATTN__ACT_TANH:
        return tanh_of(x);
    case ATTN__ACT_SIGMOID:
        return normal_of(sigmoid_of(x));
    case ATTN__ACT_SILU:
        return x_sigmoid_of(x, 1);
    default:
        return x;
    }
}

/* Returns the derivative of the activation. s is the activation's input if attn__activation_keeps_input, otherwise its
 * output. */
VF_FN vf slope_of(vf s, int kind)
{
    vf one = constant(1), half = constant(0.5), t, u;
    switch (kind) {
    case ATTN__ACT_RELU:
        return vf_select(vf_lt(vf_zero(), s), one, vf_zero());
    case ATTN__ACT_LEAKY_RELU:
        return vf_select(vf_lt(vf_zero(), s), one, constant(0.01));
    case ATTN__ACT_GELU_ERF:
        return gelu_slope(s);
    case ATTN__ACT_GELU_TANH:
        t = gelu_tanh_part(s, &u);
        u = vf_mul(vf_mul(half, s), vf_mul(vf_fnma(t, t, one), u));
        return vf_fma(half, vf_add(one, t), u);
    case ATTN__ACT_GELU_SIGMOID:
        t = sigmoid_of(vf_mul(s, constant(1.702)));
        return vf_fma(s, vf_mul(constant(1.702), vf_mul(t, vf_sub(one, t))), t);
    case ATTN__ACT_TANH:
        return vf_fnma(s, s, one);
    case ATTN__ACT_SIGMOID:
        return vf_mul(s, vf_sub(one, s));
    case ATTN__ACT_SILU:
        t = sigmoid_of(s);
        return vf_fma(s, vf_mul(t, vf_sub(one, t)), t);
    default:
        return one;
    }
}

/* Runs BODY with a constant `kind`. The macro switches over kinds outside of the loops of BODY. */
#define FOR_EACH_ACTIVATION(kind, BODY)                                                                                \
    switch (kind) {                                                                                                    \
    case ATTN__ACT_RELU:                                                                                               \
        BODY(ATTN__ACT_RELU);                                                                                          \
        break;                                                                                                         \
    case ATTN__ACT_LEAKY_RELU:                                                                                         \
        BODY(ATTN__ACT_LEAKY_RELU);                                                                                    \
        break;                                                                                                         \
    case ATTN__ACT_GELU_ERF:                                                                                           \
        BODY(ATTN__ACT_GELU_ERF);                                                                                      \
        break;                                                                                                         \
    case ATTN__ACT_GELU_TANH:                                                                                          \
        BODY(ATTN__ACT_GELU_TANH);                                                                                     \
        break;                                                                                                         \
    case ATTN__ACT_GELU_SIGMOID:                                                                                       \
        BODY(ATTN__ACT_GELU_SIGMOID);                                                                                  \
        break;                                                                                                         \
    case ATTN__ACT_TANH:                                                                                               \
        BODY(ATTN__ACT_TANH);                                                                                          \
        break;                                                                                                         \
    case ATTN__ACT_SIGMOID:                                                                                            \
        BODY(ATTN__ACT_SIGMOID);                                                                                       \
        break;                                                                                                         \
    case ATTN__ACT_SILU:                                                                                               \
        BODY(ATTN__ACT_SILU);                                                                                          \
        break;                                                                                                         \
    default:                                                                                                           \
        BODY(ATTN__ACT_IDENTITY);                                                                                      \
    }

VF_FN void activate_range(real *y, const real *x, int64_t n, int kind)
{
    for (int64_t i = 0; i < n; i += VF_LANES)
        store(y + i, n - i, activated(elementwise_load(x + i, n - i), kind));
}

static void run_activate(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
    const real *x = (const real *)a->x + begin;
    real *y = (real *)a->y + begin;
    int64_t n = end - begin;
#define BODY(kind) activate_range(y, x, n, kind)
    FOR_EACH_ACTIVATION(a->kind, BODY)
#undef BODY
}

VF_FN void activate_backward_range(real *y, const real *x, const real *saved, int64_t n, int kind)
{
    for (int64_t i = 0; i < n; i += VF_LANES) {
        vf d = vf_mul(elementwise_load(x + i, n - i), slope_of(elementwise_load(saved + i, n - i), kind));
        store(y + i, n - i, normal_of(d));
    }
}

static void run_activate_backward(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
    const real *x = (const real *)a->x + begin, *saved = (const real *)a->x2 + begin;
    real *y = (real *)a->y + begin;
    int64_t n = end - begin;
#define BODY(kind) activate_backward_range(y, x, saved, n, kind)
    FOR_EACH_ACTIVATION(a->kind, BODY)
#undef BODY
}

VF_FN void bias_activate_rows(const attn__elementwise_args *a, int64_t begin, int64_t end, int kind)
{
    int64_t n = a->n;
    const real *bias = a->x;
    for (int64_t row = begin; row < end; row++) {
        real *y = (real *)a->y + row * n;
        if (!bias) {
            activate_range(y, y, n, kind);
            continue;
        }
        for (int64_t i = 0; i < n; i += VF_LANES)
            store(y + i, n - i,
                  activated(vf_add(elementwise_load(y + i, n - i), elementwise_load(bias + i, n - i)), kind));
    }
}

static void run_bias_activate(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
#define BODY(kind) bias_activate_rows(a, begin, end, kind)
    FOR_EACH_ACTIVATION(a->kind, BODY)
#undef BODY
}

static void run_dropout(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
    int64_t n = a->n;
    for (int64_t row = begin; row < end; row++) {
        const real *x = (const real *)a->x + row * n;
        real *y = (real *)a->y + row * n;
        uint64_t key = row_key(a, row);
        for (int64_t i = 0; i < n; i += VF_LANES)
            store(y + i, n - i, apply_dropout(a, key, i, elementwise_load(x + i, n - i)));
    }
}

/* If `past` is set, the store bypasses the caches, because a normal store would read the cache line first. */
VF_FN void store_or_stream(real *y, int64_t left, vf v, bool past)
{
    if (past && left >= VF_LANES)
        vf_stream(y, v);
    else
        store(y, left, v);
}

/* Updates parameters and moments with Adam (Kingma and Ba 2014, arXiv:1412.6980) and decoupled weight decay (Loshchilov
 * and Hutter 2017, arXiv:1711.05101). */
VF_FN void adam(const attn__elementwise_args *a, int64_t begin, int64_t end, bool past)
{
    const real *x = a->x, *old_p = a->x2, *old_m = a->x3, *old_v = a->x4;
    real *p = a->y, *m = a->y2, *v = a->y3;
    vf step = constant(a->s[0]), beta1 = constant(a->s[1]), beta2 = constant(a->s[2]), eps = constant(a->s[3]);
    vf rest1 = constant(1 - a->s[1]), rest2 = constant(1 - a->s[2]), scale = constant(a->s[4]);
    vf keep = constant(1 - a->s[5]), correct = constant(a->s[6]), decay = constant(a->s[7]);
    for (int64_t i = begin; i < end; i += VF_LANES) {
        int64_t left = end - i;
        vf old = elementwise_load(old_p + i, left);
        vf g = vf_fma(old, decay, vf_mul(elementwise_load(x + i, left), scale));
        vf first = vf_fma(beta1, elementwise_load(old_m + i, left), vf_mul(rest1, g));
        vf second = vf_fma(beta2, elementwise_load(old_v + i, left), vf_mul(rest2, vf_mul(g, g)));
        vf size = vf_add(vf_sqrt(vf_mul(second, correct)), eps);
        /* Without a gradient, moments shrink until they are subnormal, so subnormal moments are set to 0. With a
         * gradient, they are kept, because small gradients add up in v. */
        vm grows = vf_lt(vf_zero(), vf_abs(g));
        store_or_stream(m + i, left, vf_select(grows, first, normal_of(first)), past);
        store_or_stream(v + i, left, vf_select(grows, second, normal_of(second)), past);
        store_or_stream(p + i, left, vf_fnma(step, vf_div(first, size), vf_mul(old, keep)), past);
    }
}

static bool are_whole_vectors(const void *x, const void *y, const void *z)
{
    return ((uintptr_t)x | (uintptr_t)y | (uintptr_t)z) % (VF_LANES * sizeof(real)) == 0;
}

static void run_adam(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
    const real *p = a->y, *m = a->y2, *v = a->y3;
    if (a->past && are_whole_vectors(p + begin, m + begin, v + begin)) {
        adam(a, begin, end, true);
        vf_stream_end();
    } else {
        adam(a, begin, end, false);
    }
}

static void run_squares(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
    for (int64_t block = begin; block < end; block++) {
        const real *x = (const real *)a->x + block * ATTN__ELEMENTWISE_BLOCK;
        int64_t n = a->n - block * ATTN__ELEMENTWISE_BLOCK;
        n = n < ATTN__ELEMENTWISE_BLOCK ? n : ATTN__ELEMENTWISE_BLOCK;
        vf sum = vf_zero();
        for (int64_t i = 0; i < n; i += VF_LANES) {
            vf v = elementwise_load(x + i, n - i);
            sum = vf_fma(v, v, sum);
        }
        double total = (double)vf_sum(sum);
        if (!isfinite(total)) { /* numbers above about 2e19 have squares that no float can hold */
            total = 0;
            for (int64_t i = 0; i < n; i++)
                total += (double)x[i] * (double)x[i];
        }
        ((double *)a->y)[block] = total;
    }
}
