/* SPDX-License-Identifier: MIT
 *
 * elementwise_math.h - loads of partial vectors and the activation functions, for one instruction set.
 */
#include "simd/dropout.h"

#include <float.h>

#ifdef VF_DOUBLE
typedef double real;
#define REAL_MIN DBL_MIN
#else
#include "simd/softmax.h"
typedef float real;
#define REAL_MIN FLT_MIN
#endif

VF_FN vf elementwise_load(const real *x, int64_t left)
{
    return left >= VF_LANES ? vf_load(x) : vf_load_part(x, (int)left);
}

VF_FN void store(real *y, int64_t left, vf v)
{
    if (left >= VF_LANES)
        vf_store(y, v);
    else
        vf_store_part(y, v, (int)left);
}

VF_FN vf constant(double x)
{
    return vf_set1((real)x);
}

VF_FN vf only_first(int64_t left, vf v, vf other)
{
    return left >= VF_LANES ? v : vf_select(vm_first((int)left), v, other);
}

/* Returns t, with 0 in place of subnormal numbers (simd/exp.h has the reason). It is for results that are stored and
 * read many times. */
VF_FN vf normal_of(vf t)
{
    return vf_below(vf_abs(t), constant(REAL_MIN), t);
}

#ifdef VF_DOUBLE
VF_FN vf exp_of(vf x)
{
    return exp(x);
}
VF_FN vf vf_mul_normal(vf a, vf b)
{
    return a * b;
}
VF_FN vf tanh_of(vf x)
{
    return tanh(x);
}
VF_FN vf erf_of(vf x)
{
    return erf(x);
}
VF_FN vf normal_cdf(vf x)
{
    return 0.5 * (1 + erf(x * 0.70710678118654752440));
}
VF_FN vf gelu_slope(vf x)
{
    return x * 0.39894228040143267794 * exp(-0.5 * x * x) + normal_cdf(x);
}
#else
/* Computes e^x as 2^(x log2 e). The rounding error of the product is corrected to first order. It is computed from
 * parts so short that their products are exact, because some instruction sets lack a fused multiply-add. */
VF_FN vf exp_of(vf x)
{
    vf t = vf_mul(x, constant(1.44269504088896341));
    vf high = vf_from_bits(vi_and(vf_bits(x), vi_set1(-4096))), low = vf_sub(x, high);
    vf lost = vf_sub(vf_mul(high, constant(1.44140625)), t);
    lost = vf_fma(high, constant(0.00128879088896341), vf_fma(low, constant(1.44269504088896341), lost));
    vf e = vf_exp2(t);
    /* Large |x| are not corrected, because the correction of an infinite x would be NaN. */
    vm usual = vf_lt(vf_abs(x), constant(88));
    return vf_select(usual, vf_fma(e, vf_mul(lost, constant(0x1.62e43p-1)), e), e);
}

/* Evaluates the polynomial with coefficients c at t. The coefficients in this file minimize the relative error at
 * Chebyshev points. They were computed in double precision. */
VF_FN vf polynomial(vf t, const double *c, int degree)
{
    vf p = constant(c[degree]);
    VF_UNROLL
    for (int i = degree - 1; i >= 0; i--)
        p = vf_fma(p, t, constant(c[i]));
    return p;
}

VF_FN vf with_sign(vf magnitude, vf sign)
{
    return vf_select(vf_lt(sign, vf_zero()), vf_sub(vf_zero(), magnitude), magnitude);
}

/* Computes tanh(x). Near zero it is x P(x^2) with an error of 2.6e-9, where P is the polynomial `near`. Elsewhere
 * |tanh(x)| is 1 - 2 / (e^2|x| + 1). */
VF_FN vf tanh_of(vf x)
{
    static const double near[] = {0.999999997, -0.333332821, 0.133316637, -0.0537667584, 0.020747494, -0.00584538961};
    vf a = vf_abs(x), two = constant(2);
    vf far = vf_sub(constant(1), vf_div(two, vf_add(exp_of(vf_mul(two, a)), constant(1))));
    vf small = vf_mul(x, polynomial(vf_mul(x, x), near, 5));
    return vf_select(vf_lt(a, constant(0.6)), small, with_sign(far, x));
}

/* Computes erf(x). P and Q are the polynomials `near` and `tail`. Up to |x| = 1, erf is x P(x^2), with an error of
 * 1.2e-9. Beyond, |erf| is 1 - e^-x^2 Q(1 / (1 + |x|/2)), with an error of 1.3e-9 of erfc. From |x| = 4.5 on, it is
 * 1. */
VF_FN vf erf_of(vf x)
{
    static const double near[] = {1.12837917,    -0.376126256,    0.112835822,   -0.0268536911,
                                  0.00518809889, -0.000800818932, 7.84725912e-05};
    static const double tail[] = {-0.000134758887, 0.284622196, 0.26153016,   0.341366688,
                                  -0.0902458218,   0.546765837, -0.459981551, 0.116109366};
    vf a = vf_min(constant(4.5), vf_abs(x)), square = vf_mul(a, a);
    vf t = vf_div(constant(1), vf_fma(constant(0.5), a, constant(1)));
    /* e is at most 0.37 of the result, so that its error needs no correction */
    vf e = vf_exp2(vf_mul(square, constant(-1.44269504088896341)));
    vf far = vf_fnma(e, polynomial(t, tail, 7), constant(1));
    vf small = vf_mul(x, polynomial(square, near, 6));
    return vf_select(vf_lt(a, constant(1)), small, with_sign(far, x));
}

/* normal_cdf is the cumulative normal distribution, (1 + erf(x / sqrt 2)) / 2. gelu_slope is the derivative of x
 * normal_cdf(x). */
#ifdef VF_LOOKUP
/* Evaluates a function f with f(x) + f(-x) = 1 from a table. 1 - f(|x|) is one of 16 polynomials, each around a
 * multiple of a step. From 15.5 steps on, 1 - f(|x|) is 0. */
VF_FN vf looked_up(vf x, const float c[][VF_LOOKUP], int degree, double steps_in_one)
{
    const vf steps = constant(steps_in_one), magic = constant(0x1.8p23), end = constant(15.5 - 0x1p-20);
    vf a = vf_mul(vf_abs(x), steps), at = vf_add(a, magic); /* the low bits hold the index of the nearest multiple */
    vf r = vf_fma(vf_abs(x), steps, vf_sub(magic, at));
    vf above = vf_lookup(c[degree], at);
    VF_UNROLL
    for (int i = degree - 1; i >= 0; i--)
        above = vf_fma(above, r, vf_lookup(c[i], at));
    above = vf_select(vf_lt(end, a), vf_zero(), above);
    return vf_select(vf_lt(x, vf_zero()), above, vf_sub(constant(1), above));
}

/* Computes the cumulative normal distribution. It takes a third of the work of erf. Its error of 1.7e-8 is as large as
 * that of 1 + erf, which loses the last digits. */
VF_FN vf normal_cdf(vf x)
{
    /* clang-format off */
    static const _Alignas(64) float c[][VF_LOOKUP] = {
        {0.5f, 0.353830248f, 0.22662735f, 0.130294517f, 0.066807203f, 0.030396359f, 0.0122244712f, 0.00433244789f,
         0.00134989817f, 0.000369078713f, 8.8417466e-05f, 1.85368226e-05f, 3.39770349e-06f, 5.44051034e-07f,
         7.6051677e-08f, 9.2758059e-09f},
        {-0.149603352f, -0.139445662f, -0.112926535f, -0.079453744f, -0.0485690981f, -0.0257948544f, -0.0119023686f,
         -0.00477156788f, -0.00166194304f, -0.000502919604f, -0.000132223431f, -3.02027056e-05f, -5.99392024e-06f,
         -1.03348441e-06f, -1.54819247e-07f, -2.01499706e-08f},
        {0.0f, 0.00980451703f, 0.015879998f, 0.0167596471f, 0.0136601226f, 0.00906863902f, 0.00502140867f,
         0.00234853546f, 0.000934832438f, 0.000318234932f, 9.29566158e-05f, 2.33537903e-05f, 5.05516573e-06f,
         9.44032649e-07f, 1.52249513e-07f, 2.12222773e-08f},
        {0.00350626139f, 0.00280862139f, 0.00115795748f, -0.000494598527f, -0.00142289104f, -0.00152086245f,
         -0.00113329722f, -0.000658782898f, -0.000311619166f, -0.000122475729f, -4.04787825e-05f, -1.13358456e-05f,
         -2.70372698e-06f, -5.51243772e-07f, -9.63322151e-08f, -1.4459097e-08f},
        {0.0f, -0.0003258051f, -0.000450454158f, -0.000339276274f, -0.000120737539f, 5.33463608e-05f,
         0.000120332144f, 0.000106763393f, 6.58448334e-05f, 3.14945755e-05f, 1.21905841e-05f, 3.90160358e-06f,
         1.04565345e-06f, 2.36595781e-07f, 4.54513724e-08f, 7.44349959e-09f},
        {-7.34222849e-05f, -4.97041765e-05f, 9.35006938e-07f, 3.87942564e-05f, 4.3267486e-05f, 2.43665199e-05f,
         3.54449844e-06f, -7.08124799e-06f, -8.17775071e-06f, -5.34099945e-06f, -2.54960764e-06f, -9.5758196e-07f,
         -2.92419031e-07f, -7.39249089e-08f, -1.56451634e-08f, -2.79272339e-09f}};
    /* clang-format on */
    return looked_up(x, c, sizeof c / sizeof *c - 1, 8.0 / 3);
}

/* Computes the derivative of GELU. The error is 4e-9 in most of the table, and 1.1e-8 at its end. */
VF_FN vf gelu_slope(vf x)
{
    /* clang-format off */
    static const _Alignas(64) float c[][VF_LOOKUP] = {
        {0.5f, 0.1972702f, -0.0198978428f, -0.117953598f, -0.12267404f, -0.0852318034f, -0.0455493368f,
         -0.0196081344f, -0.00694194436f, -0.00204373826f, -0.000503649644f, -0.000104334329f, -1.82209078e-05f,
         -2.68809413e-06f, -3.35509128e-07f, -3.54687018e-08f},
        {-0.319153786f, -0.271046817f, -0.157592222f, -0.0434976928f, 0.0248462651f, 0.0431927815f, 0.0336813778f,
         0.0184904952f, 0.0078579532f, 0.00268257712f, 0.000749449013f, 0.000173200591f, 3.33383723e-05f,
         5.36964671e-06f, 7.26096687e-07f, 8.26340738e-08f},
        {0.0f, 0.0452530272f, 0.0622952655f, 0.0477231666f, 0.0204449333f, 0.0f,
         -0.00756756123f, -0.00680855615f, -0.00380843785f, -0.00157900038f, -0.000513907929f, -0.000134856935f,
         -2.89624968e-05f, -5.13836994e-06f, -7.57825035e-07f, -9.33265483e-08f},
        {0.017020693f, 0.0114134876f, -0.000217065768f, -0.00829796121f, -0.00871551782f, -0.00460747629f,
         -0.000750825449f, 0.000893742021f, 0.000945486594f, 0.000530293153f, 0.000211280494f, 6.47255511e-05f,
         1.57818922e-05f, 3.12050497e-06f, 5.06123399e-07f, 6.78542875e-08f},
        {0.0f, -0.00255563483f, -0.00281050778f, -0.0010523526f, 0.000682618003f, 0.00115178816f,
         0.000698447693f, 0.00016017539f, -8.3145831e-05f, -0.000101986305f, -5.59620494e-05f, -2.10543385e-05f,
         -5.99103805e-06f, -1.34302525e-06f, -2.42369083e-07f, -3.56772638e-08f},
        {-0.000606009096f, -0.000319300045f, 0.000202582611f, 0.000413836242f, 0.000231075435f, -2.56625935e-05f,
         -0.000120784374f, -8.07392207e-05f, -2.06924014e-05f, 6.64744721e-06f, 9.05613706e-06f, 4.76284276e-06f,
         1.674597e-06f, 4.40208339e-07f, 9.05159609e-08f, 1.49073323e-08f},
        {0.0f, 8.46100374e-05f, 7.20899916e-05f, -3.56836563e-06f, -4.68658691e-05f, -3.18214952e-05f,
         -1.29673742e-06f, 1.10426936e-05f, 7.60655576e-06f, 1.8890953e-06f, -5.40058181e-07f, -6.93857942e-07f,
         -3.34973265e-07f, -1.07189258e-07f, -2.54970161e-08f, -4.72274087e-09f}};
    /* clang-format on */
    return looked_up(x, c, sizeof c / sizeof *c - 1, 2.5);
}
#else
VF_FN vf normal_cdf(vf x)
{
    return vf_mul(constant(0.5), vf_add(constant(1), erf_of(vf_mul(x, constant(0.70710678118654752440)))));
}

VF_FN vf gelu_slope(vf x)
{
    vf density = exp_of(vf_mul(vf_mul(x, x), constant(-0.5)));
    return vf_fma(vf_mul(x, constant(0.39894228040143267794)), density, normal_cdf(x));
}
#endif
#endif

/* Returns 1 / (1 + e^-x), which may be subnormal. */
VF_FN vf sigmoid_of(vf x)
{
    vf one = constant(1);
    return vf_div(one, vf_add(one, exp_of(vf_sub(vf_zero(), x))));
}

VF_FN vf x_sigmoid_of(vf x, double slope)
{
    vf one = constant(1);
    return normal_of(vf_div(x, vf_add(one, exp_of(vf_mul(x, constant(-slope))))));
}

/* Returns the lanes that dropout drops, for columns from `column` on. `key` is the row's key. */
VF_FN vm dropped(uint64_t key, int64_t column, uint32_t threshold)
{
    static const int32_t index[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    vi x = vi_add(vi_load(index), vi_set1((int32_t)(uint32_t)column));
    vi bits = vi_dropout_bits(x, vi_set1((int32_t)(uint32_t)key), vi_set1((int32_t)(uint32_t)(key >> 32)));
    return vi_ltu(bits, vi_set1((int32_t)threshold));
}

VF_FN vf apply_dropout(const attn__elementwise_args *a, uint64_t key, int64_t column, vf v)
{
    if (a->threshold == 0)
        return v;
    return vf_select(dropped(key, column, a->threshold), vf_zero(), vf_mul(v, constant(a->keep_scale)));
}

VF_FN uint64_t row_key(const attn__elementwise_args *a, int64_t row)
{
    return a->threshold ? attn__dropout_key(a->seed, a->stream, attn__drop_row(&a->drop_rows, (uint64_t)row)) : 0;
}
