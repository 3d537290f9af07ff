/* SPDX-License-Identifier: MIT */
#include "base/rng.h"
#include "kernels/rows/rows.h"
#if defined(__x86_64__)
#include "simd/vec_avx512.h"
#include "simd/exp.h"
#include "kernels/rows/rows_tmpl.h"
#include "simd/isa_end.h"
#endif
