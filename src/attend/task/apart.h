/* SPDX-License-Identifier: MIT
 *
 * apart.h - private sums for gradients that are broadcast and are added to the caller's values.
 *
 * Every use of a broadcast operand adds a term to one element.  Adding the terms in place would round each of them to
 * the last digit of the caller's value.  If a problem accumulates, gradients that are broadcast along a dim are
 * therefore summed in the workspace, from zero, and added to the caller's values once.  So are gradients that a solver
 * adds to block by block.
 */
#ifndef ATTN_ATTEND_APART_H
#define ATTN_ATTEND_APART_H

#include "attend/task/extent.h"

enum { ATTN__APART = 4 }; /* dq dk dv dbias */

typedef struct attn__apart {
    struct {
        attn__extent given; /* the caller's axes; none where the gradient goes straight to its place */
        int64_t count;      /* elements of the sum, which lies densely, axes in the same order; 0 if there is none */
        size_t at;          /* bytes from the beginning of the sums */
    } of[ATTN__APART];
    size_t bytes;
} attn__apart;

/* Gives broadcast gradients of the task dense strides, if it accumulates. */
void attn__apart_make(attn__apart *apart, attn__task *task);
/* The same for the gradients in `wishes` (ATTN_WANT_...); call it before the workspace is sized. */
void attn__apart_more(attn__apart *apart, attn__task *task, unsigned wishes);
/* begin: clears the sums and puts them in place of the caller's arrays.  end: adds them to those arrays. */
void attn__apart_begin(const attn__apart *apart, attn_arrays *arrays, char *sums);
void attn__apart_end(const attn__apart *apart, const attn_arrays *given, const char *sums);
/* The extent of the caller's array of an operand with private sums; NULL: it has none. */
const attn__extent *attn__apart_extent(const attn__apart *apart, attn__operand op);

#endif
