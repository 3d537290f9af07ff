/* SPDX-License-Identifier: MIT */
#include "base/rng.h"
#include "kernels/rows/rows.h"
#if defined(__aarch64__)
#include "simd/vec_neon.h"
#include "simd/exp.h"
#include "kernels/rows/rows_tmpl.h"
#include "simd/isa_end.h"
#endif
