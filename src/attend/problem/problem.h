/* SPDX-License-Identifier: MIT
 *
 * problem.h - from the caller's problem to a problem: check, resolve the defaults, bring to canonical form.
 */
#ifndef ATTN_ATTEND_PROBLEM_H
#define ATTN_ATTEND_PROBLEM_H

#include "attend/problem/operand.h"
#include "attend/problem/canonical.h"
#include "base/context.h"

/* ATTN_OK if the problem is valid; else the context's error names the dim and the reason. */
attn_status attn__check_problem(attn_context *context, const attn_problem *problem);

/* Whether pairs of a query and a key meet in one number of the bias whose gradient is requested, other than by a stride
 * of 0: a bias by distance. */
bool attn__bias_gradient_meets(const attn_problem *problem);

/* Sets defaults (scale, width, step, dilation, end, gradient strides). Clears strides and requested gradients that
 * the direction does not use. */
void attn__resolve_problem(attn_problem *problem);

/* Canonical form of a resolved problem; see canonical.h.  `threads`, `isa` and `caches` are left alone. */
void attn__canonical_make(attn__canonical *canonical, const attn_problem *resolved, bool batch_invariant);

#endif
