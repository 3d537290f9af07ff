/* SPDX-License-Identifier: MIT */
#include "kernels/backward/backward.h"
#if defined(__x86_64__)
#include "simd/vec_avx2.h"
#include "simd/exp.h"
#include "kernels/backward/backward_tmpl.h"
#include "simd/isa_end.h"
#endif
