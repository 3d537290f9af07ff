/* SPDX-License-Identifier: MIT */
#include "kernels/batch_norm/batch_norm.h"
#if defined(__x86_64__)
#include "simd/vec_avx512.h"
#include "kernels/batch_norm/batch_norm_tmpl.h"
#include "simd/isa_end.h"
#endif
