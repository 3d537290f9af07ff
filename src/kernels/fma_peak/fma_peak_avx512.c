/* SPDX-License-Identifier: MIT */
#include "kernels/fma_peak/fma_peak.h"
#if defined(__x86_64__)
#include "simd/vec_avx512.h"
#include "kernels/fma_peak/fma_peak_tmpl.h"
#include "simd/isa_end.h"
#endif
