/* SPDX-License-Identifier: MIT */
#include "kernels/backward/backward.h"
#include "simd/vec_scalar.h"
#include "simd/exp.h"
#include "kernels/backward/backward_tmpl.h"
#include "simd/isa_end.h"
