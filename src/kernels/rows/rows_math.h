/* SPDX-License-Identifier: MIT
 *
 * rows_math.h - loads with a tail and the functions of the activations, for one instruction set.
 */
#ifdef VF_DOUBLE
typedef double real;
#else
typedef float real;
#endif

VF_FN vf get(const real *x, int64_t left)
{
    return left >= VF_LANES ? vf_load(x) : vf_load_part(x, (int)left);
}

VF_FN void put(real *y, int64_t left, vf v)
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

/* v in the first `left` lanes, otherwise `other`. */
VF_FN vf only_first(int64_t left, vf v, vf other)
{
    return left >= VF_LANES ? v : vf_select(vm_first((int)left), v, other);
}

#ifdef VF_DOUBLE
VF_FN vf exp_of(vf x)
{
    return exp(x);
}
VF_FN vf tanh_of(vf x)
{
    return tanh(x);
}
VF_FN vf erf_of(vf x)
{
    return erf(x);
}
#else
/* e^x as 2^(x log2 e); what the product's rounding lost is put back to first order.  It is found by parts so
 * short that their products are exact, because not every instruction set fuses a multiply and an add. */
VF_FN vf exp_of(vf x)
{
    vf t = vf_mul(x, constant(1.44269504088896341));
    vf high = vf_from_bits(vi_and(vf_bits(x), vi_set1(-4096))), low = vf_sub(x, high);
    vf lost = vf_sub(vf_mul(high, constant(1.44140625)), t);
    lost = vf_fma(high, constant(0.00128879088896341), vf_fma(low, constant(1.44269504088896341), lost));
    vf e = vf_exp2(t);
    /* Not where x is infinite or the result is settled: the correction would be NaN. */
    vm usual = vf_lt(vf_abs(x), constant(88));
    return vf_select(usual, vf_fma(e, vf_mul(lost, constant(0x1.62e43p-1)), e), e);
}

/* Coefficients of the fits below minimise the relative error on Chebyshev points in double precision. */
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

/* x P(x^2) near zero (2.6e-9), 1 - 2 / (e^2|x| + 1) elsewhere. */
VF_FN vf tanh_of(vf x)
{
    static const double near[] = {0.999999997, -0.333332821, 0.133316637, -0.0537667584, 0.020747494, -0.00584538961};
    vf a = vf_abs(x), two = constant(2);
    vf far = vf_sub(constant(1), vf_div(two, vf_add(exp_of(vf_mul(two, a)), constant(1))));
    vf small = vf_mul(x, polynomial(vf_mul(x, x), near, 5));
    return vf_select(vf_lt(a, constant(0.6)), small, with_sign(far, x));
}

/* x P(x^2) up to 1 (1.2e-9), 1 - e^-x^2 Q(1 / (1 + |x|/2)) beyond (1.3e-9 of erfc); 4.5 gives 1. */
VF_FN vf erf_of(vf x)
{
    static const double near[] = {1.12837917,    -0.376126256,    0.112835822,   -0.0268536911,
                                  0.00518809889, -0.000800818932, 7.84725912e-05};
    static const double tail[] = {-0.000134758887, 0.284622196, 0.26153016,   0.341366688,
                                  -0.0902458218,   0.546765837, -0.459981551, 0.116109366};
    vf a = vf_min(constant(4.5), vf_abs(x)), square = vf_mul(a, a);
    vf t = vf_div(constant(1), vf_fma(constant(0.5), a, constant(1)));
    vf e = vf_exp2(vf_mul(square, constant(-1.44269504088896341))); /* at most 0.37 of the result: rounded as it is */
    vf far = vf_fnma(e, polynomial(t, tail, 7), constant(1));
    vf small = vf_mul(x, polynomial(square, near, 6));
    return vf_select(vf_lt(a, constant(1)), small, with_sign(far, x));
}
#endif

VF_FN vf sigmoid_of(vf x)
{
    vf one = constant(1);
    return vf_div(one, vf_add(one, exp_of(vf_sub(vf_zero(), x))));
}

/* Which elements of row `key` dropout drops, from this column on. */
VF_FN vm dropped(uint64_t key, int64_t column, uint32_t threshold)
{
    static const int32_t index[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    vi x = vi_add(vi_load(index), vi_set1((int32_t)(uint32_t)column));
    x = vi_xor(x, vi_set1((int32_t)(uint32_t)key));
    x = vi_mul(vi_xor(x, vi_shr(x, 16)), vi_set1((int32_t)0x7feb352du));
    x = vi_xor(x, vi_set1((int32_t)(uint32_t)(key >> 32)));
    x = vi_mul(vi_xor(x, vi_shr(x, 15)), vi_set1((int32_t)0x846ca68bu));
    x = vi_xor(x, vi_shr(x, 16));
    return vi_ltu(x, vi_set1((int32_t)threshold));
}

VF_FN vf apply_dropout(const attn__rows_args *a, uint64_t key, int64_t column, vf v)
{
    if (a->threshold == 0)
        return v;
    return vf_select(dropped(key, column, a->threshold), vf_zero(), vf_mul(v, constant(a->keep_scale)));
}

VF_FN uint64_t row_key(const attn__rows_args *a, int64_t row)
{
    return a->threshold ? attn__dropout_key(a->seed, a->stream, attn__drop_row(&a->drop_rows, (uint64_t)row)) : 0;
}
