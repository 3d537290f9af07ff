/* SPDX-License-Identifier: MIT
 *
 * batch_norm_double.c - the same loops in double precision, one number at a time: for checking, not for speed.
 */
#include "kernels/elementwise/vec_double.h"
#include "kernels/batch_norm/batch_norm.h"
#include "kernels/batch_norm/batch_norm_tmpl.h"
