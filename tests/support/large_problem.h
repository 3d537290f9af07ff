/* SPDX-License-Identifier: MIT
 *
 * large_problem.h - multi-head problems of 64 to 400 queries and keys and heads of 16 to 160 channels, large enough for
 * the matrix-unit paths of the solvers. Masks, bands, bias, dropout, types and layouts are mixed at random.
 */
#ifndef ATTN_TESTS_LARGE_PROBLEM_H
#define ATTN_TESTS_LARGE_PROBLEM_H

#include "support/random_problem.h"

/* The caller frees the problem with random_problem_free. */
void large_problem_make(random_problem *r, uint64_t number);

#endif
