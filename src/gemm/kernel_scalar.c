/* SPDX-License-Identifier: MIT */
#include "gemm/kernel.h"
#include "simd/vec_scalar.h"
#include "gemm/kernel_types.h"
#include "simd/isa_end.h"
