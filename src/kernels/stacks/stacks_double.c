/* SPDX-License-Identifier: MIT
 *
 * stacks_double.c - the same loops in double precision, one number at a time: for checking, not for speed.
 */
#include "kernels/rows/vec_double.h"
#include "kernels/stacks/stacks.h"
#include "kernels/stacks/stacks_tmpl.h"
