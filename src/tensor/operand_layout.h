/* SPDX-License-Identifier: MIT
 *
 * operand_layout.h - the position of an attention problem's operand in its tensor: bounds, and whether the gradients
 * of several operands of one tensor may be written side by side.
 */
#ifndef ATTN_TENSOR_OPERAND_LAYOUT_H
#define ATTN_TENSOR_OPERAND_LAYOUT_H

#include "attn/attn.h"

/* One dimension of an operand's elements. */
typedef struct attn__operand_dim {
    int64_t n, stride;
} attn__operand_dim;

/* Lists the dims along which the operand moves. Its strides are at `member` of attn_dim (offsetof). Windows make a
 * KEY dim of k, v and mask as long as the axis; the arrays of a tap are not affected (`positions` false). Returns
 * the number of dims. */
int attn__operand_extents(const attn_problem *problem, size_t member, bool positions,
                          attn__operand_dim extents[ATTN_MAX_DIMS]);
/* The lowest and highest element relative to the first; false if there is none (a length is 0). */
bool attn__operand_bounds(int n, const attn__operand_dim *extents, int64_t *lowest, int64_t *highest);

/* An operand as contiguous blocks of `block` elements whose starts are multiples of `row` apart. */
typedef struct attn__blocks {
    bool simple; /* it is one, with no element twice */
    int64_t block, row;
    int64_t count; /* elements */
} attn__blocks;
attn__blocks attn__operand_blocks(int n, const attn__operand_dim *extents);
/* True if two operands are known to share no element. The second one begins `distance` elements after the first. */
bool attn__blocks_disjoint(const attn__blocks *a, const attn__blocks *b, int64_t distance);

#endif
