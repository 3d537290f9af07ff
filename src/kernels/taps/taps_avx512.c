/* SPDX-License-Identifier: MIT */
#include "kernels/taps/taps.h"
#if defined(__x86_64__)
#include "simd/vec_avx512.h"
#include "kernels/taps/taps_tmpl.h"
#include "simd/isa_end.h"
#endif
