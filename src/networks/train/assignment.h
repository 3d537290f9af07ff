/* SPDX-License-Identifier: MIT
 *
 * assignment.h - the linear sum assignment problem.
 */
#ifndef ATTN_TRAIN_ASSIGNMENT_H
#define ATTN_TRAIN_ASSIGNMENT_H

#include "attn/attn.h"

/* Assigns each row a different column, column[i], so that the sum of the assigned elements of cost [rows, columns] is
 * minimal. There must be at most as many rows as columns. The method is shortest augmenting paths with potentials (Kuhn
 * 1955, Jonker and Volgenant 1987), in O(rows^2 columns). Rows are assigned in order, and among columns at the same
 * distance the first is chosen, so that equal costs give the same assignment on every machine. ATTN_ERROR_ARGUMENT:
 * there are more rows than columns, or a cost is NaN or its absolute value is above 1e150. ATTN_ERROR_MEMORY: there is
 * no memory. */
attn_status attn__assign(attn_context *context, const double *cost, int64_t rows, int64_t columns, int64_t *column);

#endif
