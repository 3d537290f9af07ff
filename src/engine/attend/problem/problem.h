/* SPDX-License-Identifier: MIT
 *
 * problem.h - checks the caller's problem, resolves its defaults and brings it to canonical form.
 */
#ifndef ATTN_ATTEND_PROBLEM_H
#define ATTN_ATTEND_PROBLEM_H

#include "attend/problem/operand.h"
#include "attend/problem/canonical.h"
#include "base/context.h"

/* Returns ATTN_OK if the problem is valid. Otherwise the context's error names the dim and the reason. */
attn_status attn__check_problem(attn_context *context, const attn_problem *problem);

/* Reports whether several pairs of a query and a key share an element of the requested bias gradient, although strides
 * are not 0. A bias by distance has such pairs. */
bool attn__bias_gradient_meets(const attn_problem *problem);

/* Replaces defaults by values (scale, width, step, dilation, end, gradient strides). Clears strides and requested
 * gradients that the direction does not use. */
void attn__resolve_problem(attn_problem *problem);

/* Brings a resolved problem to canonical form (canonical.h).  It leaves `threads`, `isa` and `caches` unset. */
void attn__canonical_make(attn__canonical *canonical, const attn_problem *resolved, bool batch_invariant);

#endif
