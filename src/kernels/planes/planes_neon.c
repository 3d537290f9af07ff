/* SPDX-License-Identifier: MIT */
#include "kernels/planes/planes.h"
#if defined(__aarch64__)
#include "simd/vec_neon.h"
#include "kernels/planes/planes_tmpl.h"
#include "simd/isa_end.h"
#endif
