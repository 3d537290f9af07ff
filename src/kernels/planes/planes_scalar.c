/* SPDX-License-Identifier: MIT */
#include "kernels/planes/planes.h"
#include "simd/vec_scalar.h"
#include "kernels/planes/planes_tmpl.h"
#include "simd/isa_end.h"
