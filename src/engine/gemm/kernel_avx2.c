/* SPDX-License-Identifier: MIT
 *
 * kernel_avx2.c - the micro-kernels of kernel_tmpl.h for AVX2: 6 rows x 2 vectors in f32.
 */
#include "gemm/kernel.h"
#if defined(__x86_64__)
#include "simd/vec_avx2.h"
#include "gemm/kernel_types.h"
#include "simd/isa_end.h"
#endif
