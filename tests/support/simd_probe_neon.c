/* SPDX-License-Identifier: MIT */
#include "support/simd_probe.h"
#if defined(__aarch64__)
#include "simd/vec_neon.h"
#include "support/simd_probe_tmpl.h"
#include "simd/isa_end.h"
#endif
