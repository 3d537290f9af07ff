/* SPDX-License-Identifier: MIT */
#include "kernels/channel_norm/channel_norm.h"
#include "simd/vec_scalar.h"
#include "kernels/channel_norm/channel_norm_tmpl.h"
#include "simd/isa_end.h"
