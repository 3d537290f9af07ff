/* SPDX-License-Identifier: MIT */
#include "kernels/few/few.h"
#include "simd/vec_scalar.h"
#include "kernels/few/few_tmpl.h"
#include "simd/isa_end.h"
