/* SPDX-License-Identifier: MIT */
#include "kernels/stacks/stacks.h"
#if defined(__x86_64__)
#include "simd/vec_avx512.h"
#include "kernels/stacks/stacks_tmpl.h"
#include "simd/isa_end.h"
#endif
