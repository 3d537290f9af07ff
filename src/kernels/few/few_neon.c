/* SPDX-License-Identifier: MIT */
#include "kernels/few/few.h"
#if defined(__aarch64__)
#include "simd/vec_neon.h"
#include "kernels/few/few_tmpl.h"
#include "simd/isa_end.h"
#endif
