/* SPDX-License-Identifier: MIT */
#include "kernels/taps/taps.h"
#include "simd/vec_scalar.h"
#include "kernels/taps/taps_tmpl.h"
#include "simd/isa_end.h"
