/* SPDX-License-Identifier: MIT */
#include "kernels/fma_peak/fma_peak.h"
#include "simd/vec_scalar.h"
#include "kernels/fma_peak/fma_peak_tmpl.h"
#include "simd/isa_end.h"
