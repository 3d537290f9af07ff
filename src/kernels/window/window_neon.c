/* SPDX-License-Identifier: MIT */
#include "kernels/window/window.h"
#if defined(__aarch64__)
#include "simd/vec_neon.h"
#include "kernels/window/window_tmpl.h"
#include "simd/isa_end.h"
#endif
