/* SPDX-License-Identifier: MIT */
#include "kernels/gemm_tile/gemm_tile.h"
#if defined(__x86_64__)
#include "simd/vec_avx512.h"
#include "kernels/gemm_tile/gemm_tile_tmpl.h"
#include "simd/isa_end.h"
#endif
