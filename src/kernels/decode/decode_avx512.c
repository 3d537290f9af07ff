/* SPDX-License-Identifier: MIT */
#include "kernels/decode/decode.h"
#if defined(__x86_64__)
#include "simd/vec_avx512.h"
#include "kernels/decode/decode_tmpl.h"
#include "simd/isa_end.h"
#endif
