/* SPDX-License-Identifier: MIT
 *
 * vec.h - the vector operations that each vec_*.h defines for its instruction set.
 *
 * A kernel template includes no vec_*.h itself. The small file of one instruction set includes the kernel's header, one
 * vec_*.h, the template, and isa_end.h.  Each vec_*.h defines:
 *
 *   VF_LANES, VF_REGISTERS, VF_ISA, VF_NAME(name)     lanes and registers, attn__isa, the name with the set's suffix
 *   vf, vi, vm                                        lanes of float, of int32, and a choice of lanes
 *   vf_load vf_store (any alignment), _part (the first n lanes only; the others load as 0)
 *   vf_load_once (into a register; a compiler may otherwise load again for every use)
 *   vf_in_order (keeps the compiler from moving loads across it, where that costs registers)
 *   vf_stream vf_stream_bf16 (whole vectors aligned to their size, past the caches if the machine can), vf_stream_end
 *   (after the last of them, before another thread reads)
 *   vf_load_bf16, vf_store_bf16 (nearest even), _part
 *   vf_set1 vf_zero vf_add vf_sub vf_mul vf_div vf_sqrt vf_abs vf_floor
 *   vf_fma(a,b,c) = a*b+c, vf_fnma(a,b,c) = c-a*b     one rounding, but two on `scalar`
 *   vf_max(a,b), vf_min(a,b)                          b if either is NaN, as on x86
 *   vf_fraction(x) = x - floor(x), vf_scale2(p,x) = p * 2^floor(x) for p from 1 to 2, 0 for x below -126
 *   vf_lt vf_eq vi_lt vi_ltu (unsigned) vm_first(n) vm_any vm_and vm_or vm_not, vf_select(m,a,b) = m ? a : b
 *   vf_below(a,l,x) = a < l ? 0 : x, vf_mul_below(a,l,b) = a < l ? 0 : a * b, where no lane of 0 underflows
 *   vi_load vi_store vi_set1 vi_add vi_sub vi_mul vi_and vi_xor vi_shr vi_shl (shifts by a constant)
 *   vf_bits vf_from_bits (the same 32 bits), vf_from_int (the value)
 *   where VF_HALVES is defined: vf_load_halves, vf_store_halves (of two places in memory), vf_transpose_halves(r):
 *   VF_LANES / 2 vectors, each half of them transposed as a square
 *   where VF_LOOKUP is defined, a power of two: vf_lookup(table, x) = table[bits of x modulo VF_LOOKUP]
 *   vf_sum vf_largest (over the lanes), vf_transpose(r): r[i] lane j <-> r[j] lane i, VF_LANES vectors
 */
#ifndef ATTN_SIMD_COMMON_H
#define ATTN_SIMD_COMMON_H

#include "simd/rows.h"
#include "base/cpu.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Forces loops over arrays of vectors to be unrolled completely. Otherwise compilers keep the arrays in memory instead
 * of registers. */
#if defined(__clang__)
#define VF_UNROLL _Pragma("clang loop unroll(full)")
#else
#define VF_UNROLL _Pragma("GCC unroll 64")
#endif

#endif
