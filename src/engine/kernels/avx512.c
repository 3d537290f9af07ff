/* SPDX-License-Identifier: MIT
 *
 * avx512.c - the kernels for AVX-512.
 */
#include "simd/vec.h"

#if defined(__x86_64__)
#include "simd/vec_avx512.h"

#include "kernels/all_tmpl.h"

#include "simd/isa_end.h"
#endif
