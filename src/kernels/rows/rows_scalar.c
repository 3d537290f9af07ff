/* SPDX-License-Identifier: MIT */
#include "base/rng.h"
#include "kernels/rows/rows.h"
#include "simd/vec_scalar.h"
#include "simd/exp.h"
#include "kernels/rows/rows_tmpl.h"
#include "simd/isa_end.h"
