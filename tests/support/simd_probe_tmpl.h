/* SPDX-License-Identifier: MIT
 * The probes of simd_probe.h for one instruction set. */
#include "simd/exp.h"
#include "simd/power.h"
#include "simd/softmax.h"
#include "simd/sums.h"

static void probe_exp2(const float *x, float *y, int n)
{
    for (int i = 0; i < n; i += VF_LANES)
        vf_store(y + i, vf_exp2(vf_load(x + i)));
}

static void probe_power(const float *x, float m, float *y, float *any, int n)
{
    vf_powers powers = vf_powers_make();
    vf reference = vf_power_reference(vf_set1(m));
    for (int i = 0; i < n; i += VF_LANES) {
        vf_store(y + i, vf_power(&powers, vf_load(x + i), reference));
        vf_store(any + i, vf_power_any(&powers, vf_load(x + i), vf_set1(m)));
    }
}

static void probe_mul_normal(const float *a, const float *b, float *y, int n)
{
    for (int i = 0; i < n; i += VF_LANES)
        vf_store(y + i, vf_mul_normal(vf_load(a + i), vf_load(b + i)));
}

static void probe_to_bf16(const float *x, uint16_t *y, int n)
{
    for (int i = 0; i < n; i += VF_LANES)
        vf_store_bf16(y + i, vf_load(x + i));
}

static void probe_from_bf16(const uint16_t *x, float *y, int n)
{
    for (int i = 0; i < n; i += VF_LANES)
        vf_store(y + i, vf_load_bf16(x + i));
}

static void probe_transpose(const float *x, float *y)
{
    vf r[VF_LANES];
    VF_UNROLL
    for (int i = 0; i < VF_LANES; i++)
        r[i] = vf_load(x + i * VF_LANES);
    vf_transpose(r);
    VF_UNROLL
    for (int i = 0; i < VF_LANES; i++)
        vf_store(y + i * VF_LANES, r[i]);
}

static void probe_sums(const float *x, float *y)
{
    vf r[VF_LANES];
    VF_UNROLL
    for (int i = 0; i < VF_LANES; i++)
        r[i] = vf_load(x + i * VF_LANES);
    vf_store(y, vf_sums(r));
}

static void probe_copy_part(const float *x, float *y, int n)
{
    vf_store_part(y, vf_load_part(x, n), n);
}

static void probe_fold(const float *x, float *sum, float *most)
{
    *sum = vf_sum(vf_load(x));
    *most = vf_largest(vf_load(x));
}

static void probe_choose(const float *x, float *y)
{
    vf a = vf_load(x);
    vf_store(y, vf_select(vf_lt(a, vf_zero()), vf_floor(a), vf_abs(vf_sub(a, vf_set1(2.0f)))));
}

static void probe_hash(const uint32_t *x, uint32_t *y)
{
    vi h = vi_load(x);
    h = vi_mul(vi_xor(h, vi_shr(h, 16)), vi_set1(0x7feb352d));
    h = vi_sub(vi_add(vi_shl(h, 3), vi_and(h, vi_set1(0xff))), vi_set1(7));
    vm low = vi_ltu(h, vi_set1((int32_t)0x80000001u));
    vi_store(y, vf_bits(vf_select(low, vf_from_bits(h), vf_zero())));
}

const simd_probe VF_NAME(simd_probe) = {VF_ISA,        VF_LANES,        probe_exp2,      probe_power, probe_mul_normal,
                                        probe_to_bf16, probe_from_bf16, probe_transpose, probe_sums,  probe_copy_part,
                                        probe_fold,    probe_choose,    probe_hash};
