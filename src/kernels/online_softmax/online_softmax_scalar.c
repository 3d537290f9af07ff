/* SPDX-License-Identifier: MIT */
#include "kernels/online_softmax/online_softmax.h"
#include "simd/vec_scalar.h"
#include "kernels/online_softmax/online_softmax_tmpl.h"
#include "simd/isa_end.h"
