/* SPDX-License-Identifier: MIT
 *
 * power.h - computes 2^(x - m) for an integer m, |x| < 2^17 and |m| < 2^16. It is for kernels in which the exponential
 * is half of the work.  Include after a vec_*.h.
 *
 * M is a constant so large that the unit in the last place of M - m is one step (1/32 or 1, see the table).  Adding M -
 * m to x rounds x to a multiple n of the step. The low bits of the sum are n - m, which becomes the exponent.
 * Subtracting M - m gives n exactly, and r = x - n is exact too.  Subtracting m therefore takes no extra instruction
 * and no extra rounding.  The function needs no rounding instruction, unlike vf_exp2. 2^r is 1 + r (c1 + c2 r ...),
 * exact at 0:
 *
 *     steps of 1/32, 2^(i/32) from a table in registers (AVX-512)     degree 2, off by at most 5.4e-8
 *     steps of 1                                                      degree 6, off by at most 2.0e-9
 *
 * The total error is within 2 units in the last place (tests/test_simd.c).
 */
#ifndef ATTN_SIMD_POWER_H
#define ATTN_SIMD_POWER_H

typedef struct vf_powers {
#ifdef VF_TABLE
    vf low, high;
#endif
    vf c1, c2;
} vf_powers;

#ifdef VF_TABLE
#define VF_POWER_SHIFT 18
#define VF_POWER_MAGIC 0x1.8p18f

/* 2^(i/32) as bits, minus i << 18. Adding the shifted index i << 18 gives the bits of 2^(i/32) again. */
static const uint32_t vf_power_table[32] = {
    0x3f800000, 0x3f7ecd87, 0x3f7daac3, 0x3f7c980f, 0x3f7b95c2, 0x3f7aa43a, 0x3f79c3d3, 0x3f78f4f0,
    0x3f7837f0, 0x3f778d3a, 0x3f76f532, 0x3f767043, 0x3f75fed7, 0x3f75a15b, 0x3f75583f, 0x3f7523f6,
    0x3f7504f3, 0x3f74fbaf, 0x3f7508a4, 0x3f752c4d, 0x3f75672a, 0x3f75b9be, 0x3f76248c, 0x3f76a81e,
    0x3f7744fd, 0x3f77fbb8, 0x3f78ccdf, 0x3f79b907, 0x3f7ac0c7, 0x3f7be4ba, 0x3f7d257d, 0x3f7e83b3};

VF_FN vf_powers vf_powers_make(void)
{
    return (vf_powers){vf_from_bits(vi_load(vf_power_table)), vf_from_bits(vi_load(vf_power_table + 16)),
                       vf_set1(0x1.62e584p-1f), vf_set1(0x1.ebfbdep-3f)};
}

/* Returns 2^r times a power of two, which is looked up in the table by the low bits of t. `index` is t, shifted to the
 * exponent. */
VF_FN vf vf_power_of(const vf_powers *c, vi t, vi index, vf r)
{
    vf power = vf_from_bits(vi_add(vf_bits(vf_pick(c->low, c->high, t)), index));
    return vf_fma(vf_mul(power, r), vf_fma(c->c2, r, c->c1), power);
}
#else
#define VF_POWER_SHIFT 23
#define VF_POWER_MAGIC 0x1.8p23f

VF_FN vf_powers vf_powers_make(void) { return (vf_powers){vf_set1(0x1.62e43p-1f), vf_set1(0x1.ebfbdcp-3f)}; }

VF_FN vf vf_power_of(const vf_powers *c, vi t, vi index, vf r)
{
    (void)t;
    vf p = vf_fma(vf_set1(0x1.41fbbcp-13f), r, vf_set1(0x1.5f3e54p-10f));
    p = vf_fma(p, r, vf_set1(0x1.3b2d4cp-7f));
    p = vf_fma(p, r, vf_set1(0x1.c6aee8p-5f));
    p = vf_fma(vf_fma(p, r, c->c2), r, c->c1);
    return vf_from_bits(vi_add(vf_bits(vf_fma(p, r, vf_set1(1.0f))), index));
}
#endif

/* Returns M - m, the argument `reference` of vf_power. M is explained at the top of the file. */
VF_FN vf vf_power_reference(vf m) { return vf_sub(vf_set1(VF_POWER_MAGIC), m); }

/* Returns 2^(x - m), which must be a normal number. `reference` is vf_power_reference(m). */
VF_FN vf vf_power(const vf_powers *c, vf x, vf reference)
{
    vf t = vf_add(x, reference), r = vf_sub(x, vf_sub(t, reference));
    return vf_power_of(c, vf_bits(t), vi_shl(vf_bits(t), VF_POWER_SHIFT), r);
}

/* Returns 2^(x - m) for any x and m. A result that is a normal number has the same bits as with vf_power. Smaller
 * results become 0. */
VF_FN vf vf_power_any(const vf_powers *c, vf x, vf m)
{
    vm far = vf_lt(vf_set1(0x1p15f), vf_abs(m)); /* if |m| is large, compute x - m first, although it is rounded */
    x = vf_select(far, vf_sub(x, m), x);
    m = vf_select(far, vf_zero(), m);
    vm gone = vf_lt(x, vf_sub(m, vf_set1(126.0f)));
    vf p = vf_power(c, vf_select(gone, m, x), vf_power_reference(m));
    return vf_select(gone, vf_zero(), vf_select(vf_eq(x, x), p, x));
}

#endif
