/* SPDX-License-Identifier: MIT */
#include "kernels/small_head/small_head.h"
#if defined(__x86_64__)
#include "simd/vec_avx512.h"
#include "kernels/small_head/small_head_tmpl.h"
#include "simd/isa_end.h"
#endif
