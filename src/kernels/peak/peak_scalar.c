/* SPDX-License-Identifier: MIT */
#include "kernels/peak/peak.h"
#include "simd/vec_scalar.h"
#include "kernels/peak/peak_tmpl.h"
#include "simd/isa_end.h"
