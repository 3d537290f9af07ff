/* SPDX-License-Identifier: MIT */
#include "kernels/pairwise/pairwise.h"
#if defined(__aarch64__)
#include "simd/vec_neon.h"
#include "kernels/pairwise/pairwise_tmpl.h"
#include "simd/isa_end.h"
#endif
