/* SPDX-License-Identifier: MIT
 *
 * private_gradients.h - private sums for gradients that are broadcast and are added to the caller's values.
 *
 * Every use of a broadcast operand adds a term to one element.  Adding the terms in place would round each of them to
 * the last digit of the caller's value.  If a problem accumulates, gradients that are broadcast along a dim are
 * therefore summed in the workspace, from zero, and added to the caller's values once.  So are gradients that a solver
 * adds to block by block.
 */
#ifndef ATTN_ATTEND_PRIVATE_GRADIENTS_H
#define ATTN_ATTEND_PRIVATE_GRADIENTS_H

#include "attend/problem/extent.h"

enum { ATTN__PRIVATE_GRADIENTS = 4 }; /* dq dk dv dbias */

typedef struct attn__private_gradients {
    struct {
        attn__extent given; /* the caller's axes; none where the gradient goes straight to its place */
        int64_t count;      /* elements of the sum, which lies densely, axes in the same order; 0 if there is none */
        size_t at;          /* bytes from the beginning of the sums */
    } of[ATTN__PRIVATE_GRADIENTS];
    size_t bytes;
} attn__private_gradients;

/* Gives broadcast gradients of the problem dense strides, if it accumulates. */
void attn__private_gradients_make(attn__private_gradients *private_gradients, attn__canonical *canonical);
/* The same for the gradients in `wishes` (ATTN_WANT_...); call it before the workspace is sized. */
void attn__private_gradients_more(attn__private_gradients *private_gradients, attn__canonical *canonical,
                                  unsigned wishes);
/* begin: clears the sums and puts them in place of the caller's arrays.  end: adds them to those arrays. */
void attn__private_gradients_begin(const attn__private_gradients *private_gradients, attn_arrays *arrays, char *sums);
void attn__private_gradients_end(const attn__private_gradients *private_gradients, const attn_arrays *given,
                                 const char *sums);
/* The extent of the caller's array of an operand with private sums; NULL: it has none. */
const attn__extent *attn__private_gradients_extent(const attn__private_gradients *private_gradients, attn__operand op);

#endif
