/* SPDX-License-Identifier: MIT */
#include "kernels/short/short.h"
#if defined(__x86_64__)
#include "simd/vec_avx512.h"
#include "kernels/short/short_tmpl.h"
#include "simd/isa_end.h"
#endif
