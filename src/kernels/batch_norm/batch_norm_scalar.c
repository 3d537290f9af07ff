/* SPDX-License-Identifier: MIT */
#include "kernels/batch_norm/batch_norm.h"
#include "simd/vec_scalar.h"
#include "kernels/batch_norm/batch_norm_tmpl.h"
#include "simd/isa_end.h"
