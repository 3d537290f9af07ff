/* SPDX-License-Identifier: MIT */
#include "kernels/window/window.h"
#include "simd/vec_scalar.h"
#include "kernels/window/window_tmpl.h"
#include "simd/isa_end.h"
