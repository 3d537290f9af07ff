/* SPDX-License-Identifier: MIT
 *
 * kernel_neon.c - the micro-kernels of kernel_tmpl.h for NEON.
 */
#include "gemm/kernel.h"
#if defined(__aarch64__)
#include "simd/vec_neon.h"
#include "gemm/kernel_types.h"
#include "simd/isa_end.h"
#endif
