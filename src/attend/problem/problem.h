/* SPDX-License-Identifier: MIT
 *
 * problem.h - from the caller's problem to a problem: check, resolve the defaults, bring to canonical form.
 */
#ifndef ATTN_ATTEND_PROBLEM_H
#define ATTN_ATTEND_PROBLEM_H

#include "attend/problem/operand.h"
#include "attend/problem/canonical.h"
#include "base/context.h"

/* ATTN_OK if the problem makes sense; else the context's error says which dim and why. */
attn_status attn__check_problem(attn_context *context, const attn_problem *problem);

/* Its parts. */
attn_status attn__check_fields(attn_context *context, const attn_problem *problem);
attn_status attn__check_windows(attn_context *context, const attn_problem *problem);
attn_status attn__check_relations(attn_context *context, const attn_problem *problem);
attn_status attn__check_packed(attn_context *context, const attn_problem *problem);
attn_status attn__check_bias_index(attn_context *context, const attn_problem *problem);
attn_status attn__check_blocks(attn_context *context, const attn_problem *problem);
attn_status attn__check_tables(attn_context *context, const attn_problem *problem);
attn_status attn__check_table_rows(attn_context *context, const attn_problem *problem);
attn_status attn__check_sizes(attn_context *context, const attn_problem *problem);
attn_status attn__check_outputs(attn_context *context, const attn_problem *problem);

/* "attn_problem.dims[dim] has role `role`", or an error that starts with `what`. */
attn_status attn__check_role(attn_context *context, const attn_problem *problem, int dim, attn_role role,
                             const char *what);

/* One dim of an array, for the test of overlap. */
typedef struct attn__span {
    int64_t n, stride;
    int dim;
} attn__span;

/* True if two different indices of the array meet in one element; `first` and `second` are then two dims that
 * take part (the same one twice if it does so alone).  Exact, but gives up, saying true, on sets of strides
 * so entangled that the search runs out of its budget.  Strides must be small enough that offsets fit. */
bool attn__spans_overlap(const attn__span *spans, int n, int *first, int *second);

/* Whether pairs of a query and a key meet in one number of the bias whose gradient is wanted, other than by a stride
 * of 0: a bias by distance. */
bool attn__bias_gradient_meets(const attn_problem *problem);

/* Fills in the defaults: scale, width, step, dilation, end, gradient strides; clears strides and wishes that
 * the direction does not use. */
void attn__resolve_problem(attn_problem *problem);

/* Canonical form of a resolved problem; see canonical.h.  `threads`, `isa` and `caches` are left alone. */
void attn__canonical_make(attn__canonical *canonical, const attn_problem *resolved, bool batch_invariant);

#endif
