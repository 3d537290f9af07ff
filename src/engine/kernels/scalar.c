/* SPDX-License-Identifier: MIT
 *
 * scalar.c - the kernels in plain C, one number at a time.
 */
#include "simd/vec_scalar.h"

#include "kernels/all_tmpl.h"

#include "simd/isa_end.h"
