/* SPDX-License-Identifier: MIT
 *
 * operand_layout.h - finds out which elements of a tensor an operand of attention uses. It computes the bounds of the
 * operand, and whether the gradients of several operands can be written to one tensor. */
#ifndef ATTN_TENSOR_OPERAND_LAYOUT_H
#define ATTN_TENSOR_OPERAND_LAYOUT_H

#include "attn/attn.h"

/* A dimension along which an operand has elements, with its length and its stride. */
typedef struct attn__operand_dim {
    int64_t n, stride;
} attn__operand_dim;

/* Lists the dims along which the operand has a stride, and returns their number. The operand's strides are at offset
 * `member` of attn_dim. For k, v and mask, `positions` must be true: a KEY dim with windows then has the length of the
 * whole axis. For arrays with one element per tap of a window, `positions` must be false. */
int attn__operand_extents(const attn_problem *problem, size_t member, bool positions,
                          attn__operand_dim extents[ATTN_MAX_DIMS]);
/* Computes the lowest and the highest index of the operand's elements, relative to its first element. Returns false if
 * a length is 0, because there is then no element. */
bool attn__operand_bounds(int n, const attn__operand_dim *extents, int64_t *lowest, int64_t *highest);

/* An operand that consists of contiguous blocks of `block` elements. The distance between block starts is a multiple of
 * `row`. */
typedef struct attn__blocks {
    bool simple; /* true: the operand consists of contiguous blocks of equal size, and no element occurs twice */
    int64_t block, row;
    int64_t count;
} attn__blocks;
attn__blocks attn__operand_blocks(int n, const attn__operand_dim *extents);
/* Returns true if two operands certainly have no element in common. Operand b begins `distance` elements after operand
 * a. */
bool attn__blocks_disjoint(const attn__blocks *a, const attn__blocks *b, int64_t distance);

#endif
