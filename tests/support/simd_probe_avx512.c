/* SPDX-License-Identifier: MIT */
#include "support/simd_probe.h"
#if defined(__x86_64__)
#include "simd/vec_avx512.h"
#include "support/simd_probe_tmpl.h"
#include "simd/isa_end.h"
#endif
