/* SPDX-License-Identifier: MIT */
#include "kernels/peak/peak.h"
#if defined(__x86_64__)
#include "simd/vec_avx512.h"
#include "kernels/peak/peak_tmpl.h"
#include "simd/isa_end.h"
#endif
