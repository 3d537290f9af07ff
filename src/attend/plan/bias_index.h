/* SPDX-License-Identifier: MIT
 *
 * bias_index.h - a bias read through an index: before a solver runs, the table is spread out, a number for each entry of
 * the index, and after it the gradients of those numbers are summed by rows of the table.  So solvers see a bias like
 * any other, and every solver that takes one takes this.
 */
#ifndef ATTN_ATTEND_BIAS_INDEX_H
#define ATTN_ATTEND_BIAS_INDEX_H

#include "attend/problem/extent.h"

typedef struct attn__bias_index {
    bool used, learned; /* learned: the gradient of the table is asked for */
    attn_dtype dtype;
    attn__extent table; /* its BATCH axes, then its rows */
    int64_t copies;     /* indices of those axes: so many biases are spread out */
    int64_t low, high;  /* the entries of the index */
    int threads;
} attn__bias_index;

/* Takes the table's strides out of a resolved problem and puts those of the bias that is spread out in their place. */
void attn__bias_index_make(attn__bias_index *x, attn_problem *resolved);
/* Bytes of workspace. */
size_t attn__bias_index_size(const attn__bias_index *x);
/* The first entry that is no row of the table, relative to the entry of query 0 and key 0; false if there is none. */
bool attn__bias_index_fault(const attn__bias_index *x, const attn_arrays *arrays, int64_t *at);
/* Spreads the table out and lets bias and dbias of `mine` point to the workspace. */
void attn__bias_index_begin(const attn__bias_index *x, attn_arrays *mine, void *workspace);
/* Sums what a solver left there into the caller's dbias. */
void attn__bias_index_end(const attn__bias_index *x, const attn_arrays *given, void *workspace);

#endif
