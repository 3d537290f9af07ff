/* SPDX-License-Identifier: MIT */
#include "kernels/tile/tile.h"
#if defined(__aarch64__)
#include "simd/vec_neon.h"
#include "kernels/tile/tile_tmpl.h"
#include "simd/isa_end.h"
#endif
