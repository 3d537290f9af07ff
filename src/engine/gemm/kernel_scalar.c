/* SPDX-License-Identifier: MIT
 *
 * kernel_scalar.c - the micro-kernels of kernel_tmpl.h for plain C.
 */
#include "gemm/kernel.h"
#include "simd/vec_scalar.h"
#include "gemm/kernel_types.h"
#include "simd/isa_end.h"
