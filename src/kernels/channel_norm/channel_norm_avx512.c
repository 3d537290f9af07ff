/* SPDX-License-Identifier: MIT */
#include "kernels/channel_norm/channel_norm.h"
#if defined(__x86_64__)
#include "simd/vec_avx512.h"
#include "kernels/channel_norm/channel_norm_tmpl.h"
#include "simd/isa_end.h"
#endif
