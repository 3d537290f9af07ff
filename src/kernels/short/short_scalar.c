/* SPDX-License-Identifier: MIT */
#include "kernels/short/short.h"
#include "simd/vec_scalar.h"
#include "kernels/short/short_tmpl.h"
#include "simd/isa_end.h"
