/* SPDX-License-Identifier: MIT */
#include "kernels/channels/channels.h"
#if defined(__x86_64__)
#include "simd/vec_avx512.h"
#include "kernels/channels/channels_tmpl.h"
#include "simd/isa_end.h"
#endif
