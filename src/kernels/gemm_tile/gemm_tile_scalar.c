/* SPDX-License-Identifier: MIT */
#include "kernels/gemm_tile/gemm_tile.h"
#include "simd/vec_scalar.h"
#include "kernels/gemm_tile/gemm_tile_tmpl.h"
#include "simd/isa_end.h"
