/* SPDX-License-Identifier: MIT */
#include "kernels/tile/tile.h"
#if defined(__x86_64__)
#include "simd/vec_avx512.h"
#include "kernels/tile/tile_tmpl.h"
#include "simd/isa_end.h"
#endif
