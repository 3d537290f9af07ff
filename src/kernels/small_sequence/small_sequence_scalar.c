/* SPDX-License-Identifier: MIT */
#include "kernels/small_sequence/small_sequence.h"
#include "simd/vec_scalar.h"
#include "kernels/small_sequence/small_sequence_tmpl.h"
#include "simd/isa_end.h"
