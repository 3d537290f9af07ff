/* SPDX-License-Identifier: MIT */
#include "kernels/pairwise/pairwise.h"
#if defined(__x86_64__)
#include "simd/vec_avx2.h"
#include "kernels/pairwise/pairwise_tmpl.h"
#include "simd/isa_end.h"
#endif
