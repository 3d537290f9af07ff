/* SPDX-License-Identifier: MIT */
#include "kernels/small_head/small_head.h"
#if defined(__aarch64__)
#include "simd/vec_neon.h"
#include "kernels/small_head/small_head_tmpl.h"
#include "simd/isa_end.h"
#endif
