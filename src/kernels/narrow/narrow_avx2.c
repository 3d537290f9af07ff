/* SPDX-License-Identifier: MIT */
#include "kernels/narrow/narrow.h"
#if defined(__x86_64__)
#include "simd/vec_avx2.h"
#include "kernels/narrow/narrow_tmpl.h"
#include "simd/isa_end.h"
#endif
