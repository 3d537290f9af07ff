/* SPDX-License-Identifier: MIT */
#include "support/simd_probe.h"
#include "simd/vec_scalar.h"
#include "support/simd_probe_tmpl.h"
#include "simd/isa_end.h"
