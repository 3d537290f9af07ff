/* SPDX-License-Identifier: MIT
 *
 * fma_peak_tmpl.h - chains of multiply-adds that never touch memory, for one instruction set; see fma_peak.h.
 */
/* Number of independent chains. It is at least the latency of an FMA unit times the number of units, on every known
 * machine. 12 chains also fit into the smallest register file. */
enum { CHAINS = 12 };

static double fma_peak_run(int64_t rounds, float *sink)
{
    vf chain[CHAINS], a = vf_set1(0.999f), b = vf_set1(1e-3f);
    VF_UNROLL
    for (int i = 0; i < CHAINS; i++)
        chain[i] = vf_set1((float)i);
    for (int64_t round = 0; round < rounds; round++) {
        VF_UNROLL
        for (int i = 0; i < CHAINS; i++)
            chain[i] = vf_fma(chain[i], a, b);
    }
    VF_UNROLL
    for (int i = 1; i < CHAINS; i++)
        chain[0] = vf_add(chain[0], chain[i]);
    *sink += vf_sum(chain[0]);
    return 2.0 * CHAINS * VF_LANES * (double)rounds;
}

const attn__fma_peak_kernel VF_NAME(attn__fma_peak) = {VF_ISA, fma_peak_run};
