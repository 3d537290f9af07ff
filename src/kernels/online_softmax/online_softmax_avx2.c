/* SPDX-License-Identifier: MIT */
#include "kernels/online_softmax/online_softmax.h"
#if defined(__x86_64__)
#include "simd/vec_avx2.h"
#include "kernels/online_softmax/online_softmax_tmpl.h"
#include "simd/isa_end.h"
#endif
