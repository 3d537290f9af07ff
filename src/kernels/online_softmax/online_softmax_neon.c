/* SPDX-License-Identifier: MIT */
#include "kernels/online_softmax/online_softmax.h"
#if defined(__aarch64__)
#include "simd/vec_neon.h"
#include "kernels/online_softmax/online_softmax_tmpl.h"
#include "simd/isa_end.h"
#endif
