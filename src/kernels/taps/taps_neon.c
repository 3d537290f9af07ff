/* SPDX-License-Identifier: MIT */
#include "kernels/taps/taps.h"
#if defined(__aarch64__)
#include "simd/vec_neon.h"
#include "kernels/taps/taps_tmpl.h"
#include "simd/isa_end.h"
#endif
