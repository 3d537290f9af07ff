/* SPDX-License-Identifier: MIT
 *
 * elementwise_double.c - the same loops in double precision, one number at a time: for checking, not for speed.
 */
#include "base/rng.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/vec_double.h"
#include "kernels/elementwise/elementwise_tmpl.h"
