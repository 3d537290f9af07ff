/* SPDX-License-Identifier: MIT */
#include "kernels/decode/decode.h"
#if defined(__aarch64__)
#include "simd/vec_neon.h"
#include "kernels/decode/decode_tmpl.h"
#include "simd/isa_end.h"
#endif
