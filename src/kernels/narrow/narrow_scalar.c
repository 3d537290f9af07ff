/* SPDX-License-Identifier: MIT */
#include "kernels/narrow/narrow.h"
#include "simd/vec_scalar.h"
#include "kernels/narrow/narrow_tmpl.h"
#include "simd/isa_end.h"
