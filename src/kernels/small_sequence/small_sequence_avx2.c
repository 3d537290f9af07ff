/* SPDX-License-Identifier: MIT */
#include "kernels/small_sequence/small_sequence.h"
#if defined(__x86_64__)
#include "simd/vec_avx2.h"
#include "kernels/small_sequence/small_sequence_tmpl.h"
#include "simd/isa_end.h"
#endif
