/* SPDX-License-Identifier: MIT
 *
 * apart.h - gradients that are added to a given value and are broadcast as well.
 *
 * Every use of a broadcast operand adds to one element.  Solvers add such terms up in place, which is right as long as
 * the sum begins with zero: next to a large given value each of them would be rounded to that value's last digit.  So
 * where a problem accumulates, gradients that stand still along some dim (and only these, so that it costs no more than
 * what is broadcast) are summed in the workspace, from zero, and added to what was given once.  So are gradients of which
 * a solver says that it adds to them block by block.
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
/* The same for the gradients in `wishes` (ATTN_WANT_...), before memory is set aside. */
void attn__apart_more(attn__apart *apart, attn__task *task, unsigned wishes);
/* Clears the sums and puts them in place of the caller's arrays; then the way back. */
void attn__apart_begin(const attn__apart *apart, attn_arrays *arrays, char *sums);
void attn__apart_end(const attn__apart *apart, const attn_arrays *given, const char *sums);
/* The caller's extent of an operand that is apart, or NULL. */
const attn__extent *attn__apart_extent(const attn__apart *apart, attn__operand op);

#endif
