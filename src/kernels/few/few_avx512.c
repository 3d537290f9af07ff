/* SPDX-License-Identifier: MIT */
#include "kernels/few/few.h"
#if defined(__x86_64__)
#include "simd/vec_avx512.h"
#include "kernels/few/few_tmpl.h"
#include "simd/isa_end.h"
#endif
