/* SPDX-License-Identifier: MIT
 *
 * operand_layout.h - which elements of a tensor an attention problem's operand uses: the bounds of the operand, and
 * whether the gradients of several operands can be written to one tensor.
 */
#ifndef ATTN_TENSOR_OPERAND_LAYOUT_H
#define ATTN_TENSOR_OPERAND_LAYOUT_H

#include "attn/attn.h"

/* One dimension along which an operand's elements are arranged. */
typedef struct attn__operand_dim {
    int64_t n, stride;
} attn__operand_dim;

/* Lists the dims along which the operand has a stride, and returns their number. The operand's strides are at offset
 * `member` of attn_dim. For k, v and mask, `positions` must be true: a KEY dim with windows then has the length of the
 * whole axis. For arrays with one element per tap of a window it must be false. */
int attn__operand_extents(const attn_problem *problem, size_t member, bool positions,
                          attn__operand_dim extents[ATTN_MAX_DIMS]);
/* Computes the lowest and the highest element relative to the first. Returns false if there is no element, because a
 * length is 0. */
bool attn__operand_bounds(int n, const attn__operand_dim *extents, int64_t *lowest, int64_t *highest);

/* An operand as contiguous blocks of `block` elements each. The distance between block starts is a multiple of
 * `row`. */
typedef struct attn__blocks {
    bool simple; /* true: the operand consists of such blocks, and no element occurs twice */
    int64_t block, row;
    int64_t count; /* number of elements */
} attn__blocks;
attn__blocks attn__operand_blocks(int n, const attn__operand_dim *extents);
/* Returns true if two operands are known to share no element. The second one begins `distance` elements after the
 * first. */
bool attn__blocks_disjoint(const attn__blocks *a, const attn__blocks *b, int64_t distance);

#endif
