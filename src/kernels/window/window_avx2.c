/* SPDX-License-Identifier: MIT */
#include "kernels/window/window.h"
#if defined(__x86_64__)
#include "simd/vec_avx2.h"
#include "kernels/window/window_tmpl.h"
#include "simd/isa_end.h"
#endif
