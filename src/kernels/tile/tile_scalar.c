/* SPDX-License-Identifier: MIT */
#include "kernels/tile/tile.h"
#include "simd/vec_scalar.h"
#include "kernels/tile/tile_tmpl.h"
#include "simd/isa_end.h"
