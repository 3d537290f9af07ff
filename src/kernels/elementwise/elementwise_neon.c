/* SPDX-License-Identifier: MIT */
#include "base/rng.h"
#include "kernels/elementwise/elementwise.h"
#if defined(__aarch64__)
#include "simd/vec_neon.h"
#include "simd/exp.h"
#include "kernels/elementwise/elementwise_tmpl.h"
#include "simd/isa_end.h"
#endif
