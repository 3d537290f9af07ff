/* SPDX-License-Identifier: MIT */
#include "kernels/lanes/lanes.h"
#include "simd/vec_scalar.h"
#include "kernels/lanes/lanes_tmpl.h"
#include "simd/isa_end.h"
