/* SPDX-License-Identifier: MIT */
#include "kernels/small_head/small_head.h"
#include "simd/vec_scalar.h"
#include "kernels/small_head/small_head_tmpl.h"
#include "simd/isa_end.h"
