/* SPDX-License-Identifier: MIT */
#include "kernels/gemm_tile/gemm_tile.h"
#if defined(__aarch64__)
#include "simd/vec_neon.h"
#include "kernels/gemm_tile/gemm_tile_tmpl.h"
#include "simd/isa_end.h"
#endif
