/* SPDX-License-Identifier: MIT */
#include "kernels/decode/decode.h"
#include "simd/vec_scalar.h"
#include "kernels/decode/decode_tmpl.h"
#include "simd/isa_end.h"
