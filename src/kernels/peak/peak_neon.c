/* SPDX-License-Identifier: MIT */
#include "kernels/peak/peak.h"
#if defined(__aarch64__)
#include "simd/vec_neon.h"
#include "kernels/peak/peak_tmpl.h"
#include "simd/isa_end.h"
#endif
