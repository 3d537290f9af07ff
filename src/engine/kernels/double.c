/* SPDX-License-Identifier: MIT
 *
 * double.c - the norms and elementwise kernels in double precision. They process one number at a time, because they are
 * for checks, not for speed.
 */
#include "base/rng.h"
#include "kernels/batch_norm/batch_norm.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/vec_double.h"

#include "kernels/batch_norm/batch_norm_tmpl.h"
#include "kernels/elementwise/elementwise_tmpl.h"
