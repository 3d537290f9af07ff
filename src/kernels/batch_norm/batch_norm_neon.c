/* SPDX-License-Identifier: MIT */
#include "kernels/batch_norm/batch_norm.h"
#if defined(__aarch64__)
#include "simd/vec_neon.h"
#include "kernels/batch_norm/batch_norm_tmpl.h"
#include "simd/isa_end.h"
#endif
