/* SPDX-License-Identifier: MIT */
#include "kernels/lanes/lanes.h"
#if defined(__aarch64__)
#include "simd/vec_neon.h"
#include "kernels/lanes/lanes_tmpl.h"
#include "simd/isa_end.h"
#endif
