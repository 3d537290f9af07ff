/* SPDX-License-Identifier: MIT */
#include "kernels/channels/channels.h"
#include "simd/vec_scalar.h"
#include "kernels/channels/channels_tmpl.h"
#include "simd/isa_end.h"
