/* SPDX-License-Identifier: MIT
 *
 * all_reduce.h - adds up gradients over the ranks (dist/ranks.h) while the backward pass still runs.
 *
 * Gradients of parameters are stored in buckets of a few megabytes. Within and among buckets, they are in the order in
 * which the backward pass of the first tape finishes them. This order is the same on all ranks, because all ranks run
 * the same operations.
 *
 * The tape calls attn__all_reduce_node after the backward pass of each operation. A gradient is final after the last
 * operation that uses its parameter. A bucket's sum over the ranks starts when its gradients are final and the sums of
 * the earlier buckets have started. Started sums are polled between operations. attn__all_reduce_backward returns when
 * all sums are finished.
 */
#ifndef ATTN_TENSOR_ALL_REDUCE_H
#define ATTN_TENSOR_ALL_REDUCE_H

#include "tensor/tape.h"

/* Creates an all-reduce of the gradients of all f32 tensors in `parameters` that need gradients. `parameters` must
 * outlive the result. `bytes` is the size of a bucket; 0 means 4 MiB. `state` has one or two tensors of the optimizer
 * for each of these parameters, in the order of the parameters. If `state` is NULL, each rank computes the whole step
 * of the optimizer. Otherwise, if all ranks share memory, each rank computes a part of the step. */
attn_status attn__all_reduce_create(attn__all_reduce **all_reduce, attn_context *context,
                                    const attn_named_list *parameters, const attn_named_list *state, size_t bytes);
void attn__all_reduce_destroy(attn__all_reduce *all_reduce); /* accepts NULL */

/* Begins a pass. Call it after a reset of the tape and before the forward pass. `more` is false for the first pass
 * of a step, and true for its other passes. */
void attn__all_reduce_begin(attn__all_reduce *all_reduce, attn_tape *tape, bool more);
/* Runs attn_backward for `weight` times the loss, without sums over the ranks. The next call of
 * attn__all_reduce_backward adds its own gradients to those of this call, and then sums both over the ranks. Returns
 * the errors of attn__all_reduce_backward. */
attn_status attn__all_reduce_keep(attn__all_reduce *all_reduce, attn_tape *tape, attn_tensor *loss, double weight);
enum { ATTN__ALL_REDUCE_TOTALS = 4 };
/* Runs attn_backward for `weight` times the loss, and sums over the ranks. Then the gradients of the parameters and the
 * elements of totals[ntotals] are sums over all ranks. Totals are summed in double; ntotals is at most
 * ATTN__ALL_REDUCE_TOTALS. After an error the step is invalid and must be undone by attn__all_reduce_abandon. */
attn_status attn__all_reduce_backward(attn__all_reduce *all_reduce, attn_tape *tape, attn_tensor *loss, double weight,
                                      double *totals, int ntotals);
/* Undoes an unfinished step. This resets gradients and running statistics, which the forward pass updates. */
void attn__all_reduce_abandon(attn__all_reduce *all_reduce, attn_tape *tape);
/* Returns the total seconds that were spent waiting for sums at the ends of backward passes. */
double attn__all_reduce_waited(const attn__all_reduce *all_reduce);

/* Returns true if parameters and optimizer state are in memory that all ranks share. They are moved there in the first
 * backward pass. Their address then changes with each step, so their data pointers must be read again after each step,
 * and no other code may write to them. Gradients must not be read, because each rank has only the sums of its part. */
bool attn__all_reduce_is_shared(const attn__all_reduce *all_reduce);
/* Returns the sum of squares of the elements of all gradients. */
double attn__all_reduce_squares(const attn__all_reduce *all_reduce);
/* A piece of a parameter that this rank updates. From p and s, which stay unchanged, the optimizer computes new values
 * and writes them to p2 and s2. */
typedef struct attn__all_reduce_piece {
    const attn_tensor *parameter;
    const float *p, *s[2], *g;
    float *p2, *s2[2];
    int64_t n;
    /* true: write p2 and s2 past the caches, because they are too large for the caches */
    bool past;
} attn__all_reduce_piece;
/* After the last piece, returns false, and the next call begins with the first piece again. */
bool attn__all_reduce_next(attn__all_reduce *all_reduce, attn__all_reduce_piece *piece);
/* Ends the step on all ranks after each rank has computed its part. After an error the parameters are unchanged. */
attn_status attn__all_reduce_commit(attn__all_reduce *all_reduce);

/* The tape calls this after the backward pass of each node. */
void attn__all_reduce_node(attn__all_reduce *all_reduce, attn_tape *tape, const attn__node *node);
/* Returns false if the step must end, because another rank aborted or a stop was requested. The context has the
 * error. */
bool attn__all_reduce_continues(attn__all_reduce *all_reduce);
/* Stores the gradient of x at x->place, in a bucket. Returns false and records an error if there is no memory. */
bool attn__grad_place(attn_tensor *x);

#endif
