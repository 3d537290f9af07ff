/* SPDX-License-Identifier: MIT */
#include "kernels/short/short.h"
#if defined(__aarch64__)
#include "simd/vec_neon.h"
#include "kernels/short/short_tmpl.h"
#include "simd/isa_end.h"
#endif
