/* SPDX-License-Identifier: MIT */
#include "kernels/stacks/stacks.h"
#include "simd/vec_scalar.h"
#include "kernels/stacks/stacks_tmpl.h"
#include "simd/isa_end.h"
