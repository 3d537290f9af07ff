/* SPDX-License-Identifier: MIT */
#include "gemm/kernel.h"
#if defined(__x86_64__)
#include "simd/vec_avx512.h"
#include "gemm/kernel_types.h"
#include "simd/isa_end.h"
#endif
