/* SPDX-License-Identifier: MIT */
#include "base/rng.h"
#include "kernels/elementwise/elementwise.h"
#include "simd/vec_scalar.h"
#include "simd/exp.h"
#include "kernels/elementwise/elementwise_tmpl.h"
#include "simd/isa_end.h"
