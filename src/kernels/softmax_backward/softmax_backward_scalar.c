/* SPDX-License-Identifier: MIT */
#include "kernels/softmax_backward/softmax_backward.h"
#include "simd/vec_scalar.h"
#include "simd/exp.h"
#include "kernels/softmax_backward/softmax_backward_tmpl.h"
#include "simd/isa_end.h"
