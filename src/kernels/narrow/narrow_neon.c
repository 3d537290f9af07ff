/* SPDX-License-Identifier: MIT */
#include "kernels/narrow/narrow.h"
#if defined(__aarch64__)
#include "simd/vec_neon.h"
#include "kernels/narrow/narrow_tmpl.h"
#include "simd/isa_end.h"
#endif
