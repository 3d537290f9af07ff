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

/* `parameters` must outlive it; f32 ones that need gradients are exchanged.  `bytes` of a bucket; 0: 4 MiB.  `state`:
 * what the optimizer keeps, one or two tensors for each of those parameters, in their order: where all ranks see the
 * same memory each then takes its part of the optimizer's step too (below).  NULL: none does. */
attn_status attn__all_reduce_create(attn__all_reduce **all_reduce, attn_context *context,
                                    const attn_named_list *parameters, const attn_named_list *state, size_t bytes);
void attn__all_reduce_destroy(attn__all_reduce *all_reduce); /* NULL is allowed */

/* Between a reset of the tape and the forward pass; `more`: one that is not the step's first. */
void attn__all_reduce_begin(attn__all_reduce *all_reduce, attn_tape *tape, bool more);
/* attn_backward for `weight` times the loss, whose gradients stay here until the next attn__all_reduce_backward,
 * which adds to them.  Errors as there. */
attn_status attn__all_reduce_keep(attn__all_reduce *all_reduce, attn_tape *tape, attn_tensor *loss, double weight);
/* attn_backward for `weight` times the loss, with the all-reduce; after it the parameters' gradients, and
 * totals[ntotals] (in double, at most ATTN__ALL_REDUCE_TOTALS), are sums over the ranks.  Any error: the step is to be
 * forgotten, and with attn__all_reduce_abandon nothing of it stays. */
enum { ATTN__ALL_REDUCE_TOTALS = 4 };
attn_status attn__all_reduce_backward(attn__all_reduce *all_reduce, attn_tape *tape, attn_tensor *loss, double weight,
                                      double *totals, int ntotals);
/* Takes back what an unfinished step changed: gradients, and running statistics of the forward pass. */
void attn__all_reduce_abandon(attn__all_reduce *all_reduce, attn_tape *tape);
/* Seconds spent waiting after backward passes for sums that were not there yet. */
double attn__all_reduce_waited(const attn__all_reduce *all_reduce);

/* Where this holds (from the first backward pass on) parameters and state are in memory that all ranks share, at
 * another address after each step: no other code may write to them, and the addresses of their data must be read again.
 * Gradients are not to be looked at: each rank has the sums of its part of them only. */
bool attn__all_reduce_is_shared(const attn__all_reduce *all_reduce);
/* The sum of the squares of all gradients. */
double attn__all_reduce_squares(const attn__all_reduce *all_reduce);
/* A piece of a parameter whose step this rank takes: from p and s, which stay as they are, to p2 and s2. */
typedef struct attn__all_reduce_piece {
    const attn_tensor *parameter; /* that it is of */
    const float *p, *s[2], *g;
    float *p2, *s2[2];
    int64_t n;
    bool past; /* p2 and s2 are more than caches hold until they are read */
} attn__all_reduce_piece;
/* The next of them; false: there is none, and the next call begins anew. */
bool attn__all_reduce_next(attn__all_reduce *all_reduce, attn__all_reduce_piece *piece);
/* When all ranks have taken their parts of the step, it is done, here as there.  Any error: nothing has changed. */
attn_status attn__all_reduce_commit(attn__all_reduce *all_reduce);

/* For the tape.  After a node's backward pass: */
void attn__all_reduce_node(attn__all_reduce *all_reduce, attn_tape *tape, const attn__node *node);
/* False (noted) if the step is to be left: another rank aborted, or a stop was requested. */
bool attn__all_reduce_continues(attn__all_reduce *all_reduce);
/* Gives a parameter's gradient its place in a bucket; false (noted) without memory. */
bool attn__grad_place(attn_tensor *x);

#endif
