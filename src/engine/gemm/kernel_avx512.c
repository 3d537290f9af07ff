/* SPDX-License-Identifier: MIT
 *
 * kernel_avx512.c - the micro-kernels of kernel_tmpl.h for AVX-512: 12 rows x 2 vectors in f32.
 */
#include "gemm/kernel.h"
#if defined(__x86_64__)
#include "simd/vec_avx512.h"
#include "gemm/kernel_types.h"
#include "simd/isa_end.h"
#endif
