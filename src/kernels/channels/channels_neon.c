/* SPDX-License-Identifier: MIT */
#include "kernels/channels/channels.h"
#if defined(__aarch64__)
#include "simd/vec_neon.h"
#include "kernels/channels/channels_tmpl.h"
#include "simd/isa_end.h"
#endif
