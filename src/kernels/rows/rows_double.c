/* SPDX-License-Identifier: MIT
 *
 * rows_double.c - the same loops in double precision, one number at a time: for checking, not for speed.
 */
#include "base/rng.h"
#include "kernels/rows/rows.h"
#include "kernels/rows/vec_double.h"
#include "kernels/rows/rows_tmpl.h"
