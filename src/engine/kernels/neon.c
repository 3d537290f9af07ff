/* SPDX-License-Identifier: MIT
 *
 * neon.c - the kernels for NEON.
 */
#include "simd/vec.h"

#if defined(__aarch64__)
#include "simd/vec_neon.h"

#include "kernels/all_tmpl.h"

#include "simd/isa_end.h"
#endif
