/* SPDX-License-Identifier: MIT */
#include "kernels/stacks/stacks.h"
#if defined(__aarch64__)
#include "simd/vec_neon.h"
#include "kernels/stacks/stacks_tmpl.h"
#include "simd/isa_end.h"
#endif
