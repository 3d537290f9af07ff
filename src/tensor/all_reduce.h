/* SPDX-License-Identifier: MIT
 *
 * all_reduce.h - gradients added up over the ranks (dist/ranks.h) while the backward pass still runs.
 *
 * The parameters' gradients are, from the start, in buckets of a few megabytes, in the order in which a backward pass
 * finishes them (found from the first tape; the same on all ranks, since the same operations made it).  The tape tells
 * after each operation; when the backward pass of the last operation that uses a parameter is done, its gradient is
 * final, and a bucket of final gradients starts on its way, behind the buckets before it.  Between operations the sums
 * under way are given a chance to advance.  attn__all_reduce_finish waits for the rest.
 */
#ifndef ATTN_TENSOR_ALL_REDUCE_H
#define ATTN_TENSOR_ALL_REDUCE_H

#include "tensor/tape.h"

/* `parameters` must outlive the result. Its f32 tensors that need gradients are exchanged. `bytes` of a bucket; 0: 4
 * MiB. `state`: one or two tensors of the optimizer for each of those parameters, in their order. If all ranks share
 * memory, each rank then computes a part of the optimizer's step (below). NULL: no rank does. */
attn_status attn__all_reduce_create(attn__all_reduce **all_reduce, attn_context *context,
                                    const attn_named_list *parameters, const attn_named_list *state, size_t bytes);
void attn__all_reduce_destroy(attn__all_reduce *all_reduce); /* NULL is allowed */

/* Call it between a reset of the tape and the forward pass. `more`: the pass is not the first of the step. */
void attn__all_reduce_begin(attn__all_reduce *all_reduce, attn_tape *tape, bool more);
/* Runs attn_backward for `weight` times the loss. The gradients stay local until the next attn__all_reduce_backward,
 * which adds to them. Errors are those of attn__all_reduce_backward. */
attn_status attn__all_reduce_keep(attn__all_reduce *all_reduce, attn_tape *tape, attn_tensor *loss, double weight);
/* Runs attn_backward for `weight` times the loss, with the all-reduce. Afterwards the parameters' gradients and
 * totals[ntotals] (in double, at most ATTN__ALL_REDUCE_TOTALS) are sums over the ranks. After an error the step is
 * invalid, and attn__all_reduce_abandon undoes it. */
enum { ATTN__ALL_REDUCE_TOTALS = 4 };
attn_status attn__all_reduce_backward(attn__all_reduce *all_reduce, attn_tape *tape, attn_tensor *loss, double weight,
                                      double *totals, int ntotals);
/* Undoes the changes of an unfinished step: gradients, and running statistics of the forward pass. */
void attn__all_reduce_abandon(attn__all_reduce *all_reduce, attn_tape *tape);
/* Seconds spent waiting for sums after backward passes. */
double attn__all_reduce_waited(const attn__all_reduce *all_reduce);

/* True from the first backward pass on if parameters and state are in memory that all ranks share. Their address
 * then changes with each step: no other code may write to them, and data addresses must be read again. Gradients
 * must not be read: each rank has only the sums of its part. */
bool attn__all_reduce_is_shared(const attn__all_reduce *all_reduce);
/* The sum of the squares of all gradients. */
double attn__all_reduce_squares(const attn__all_reduce *all_reduce);
/* A piece of a parameter that this rank updates: from p and s, which do not change, to p2 and s2. */
typedef struct attn__all_reduce_piece {
    const attn_tensor *parameter; /* that it is of */
    const float *p, *s[2], *g;
    float *p2, *s2[2];
    int64_t n;
    bool past; /* p2 and s2 exceed the caches until they are read */
} attn__all_reduce_piece;
/* The next piece. False: there is none, and the next call begins with the first piece. */
bool attn__all_reduce_next(attn__all_reduce *all_reduce, attn__all_reduce_piece *piece);
/* Ends the step on all ranks after each rank has computed its part. After an error nothing has changed. */
attn_status attn__all_reduce_commit(attn__all_reduce *all_reduce);

/* For the tape.  After a node's backward pass: */
void attn__all_reduce_node(attn__all_reduce *all_reduce, attn_tape *tape, const attn__node *node);
/* False if the step must end, because another rank aborted or a stop was requested. The context has the reason. */
bool attn__all_reduce_continues(attn__all_reduce *all_reduce);
/* Gives a parameter's gradient its place in a bucket; false (noted) without memory. */
bool attn__grad_place(attn_tensor *x);

#endif
