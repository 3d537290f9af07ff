/* SPDX-License-Identifier: MIT */
#include "kernels/pairwise/pairwise.h"
#include "simd/vec_scalar.h"
#include "kernels/pairwise/pairwise_tmpl.h"
#include "simd/isa_end.h"
