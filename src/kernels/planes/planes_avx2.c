/* SPDX-License-Identifier: MIT */
#include "kernels/planes/planes.h"
#if defined(__x86_64__)
#include "simd/vec_avx2.h"
#include "kernels/planes/planes_tmpl.h"
#include "simd/isa_end.h"
#endif
