/* SPDX-License-Identifier: MIT */
#include "kernels/lanes/lanes.h"
#if defined(__x86_64__)
#include "simd/vec_avx512.h"
#include "kernels/lanes/lanes_tmpl.h"
#include "simd/isa_end.h"
#endif
