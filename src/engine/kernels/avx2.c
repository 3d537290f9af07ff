/* SPDX-License-Identifier: MIT
 *
 * avx2.c - the kernels for AVX2.
 */
#include "simd/vec.h"

#if defined(__x86_64__)
#include "simd/vec_avx2.h"

#include "kernels/all_tmpl.h"

#include "simd/isa_end.h"
#endif
