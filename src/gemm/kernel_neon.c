/* SPDX-License-Identifier: MIT */
#include "gemm/kernel.h"
#if defined(__aarch64__)
#include "simd/vec_neon.h"
#include "gemm/kernel_types.h"
#include "simd/isa_end.h"
#endif
