/* SPDX-License-Identifier: MIT */
#include "kernels/softmax_backward/softmax_backward.h"
#if defined(__aarch64__)
#include "simd/vec_neon.h"
#include "simd/exp.h"
#include "kernels/softmax_backward/softmax_backward_tmpl.h"
#include "simd/isa_end.h"
#endif
