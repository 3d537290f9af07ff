/* SPDX-License-Identifier: MIT
 *
 * all_reduce_inner.h - types and functions that the files of the all-reduce share.
 */
#ifndef ATTN_TENSOR_ALL_REDUCE_INNER_H
#define ATTN_TENSOR_ALL_REDUCE_INNER_H

#include "dist/ranks.h"
#include "tensor/all_reduce.h"

typedef struct attn__slot {
    attn_tensor *parameter;
    int64_t index; /* index in the list of parameters with exchanged gradients */
    int64_t bucket;
    int64_t at;   /* offset of the gradient in its bucket, in elements */
    int64_t flag; /* offset in the bucket of a flag, which is positive after the sum if any rank has this gradient */
    int64_t uses; /* number of operations with this parameter that the backward pass has not run yet */
} attn__slot;

typedef struct attn__bucket {
    int64_t first, n;
    int64_t open; /* number of the bucket's slots whose gradients are not final yet */
    float *data;  /* the gradients, then one flag per gradient, then padding to a whole cache line */
    int64_t elements;
    int64_t size; /* number of gradients, flags and padding elements */
    attn__ranks_request request;
    bool done;
} attn__bucket;

typedef struct attn__shared attn__shared;

struct attn__all_reduce {
    attn_context *context;
    size_t bytes;
    attn__slot *slots; /* if `ordered` is true, the slots are in the order in which their gradients become final */
    int64_t nslots;
    bool ordered;
    attn__bucket *buckets;
    int64_t nbuckets;
    /* number of buckets whose sum has started in this step, and number of buckets whose sum has finished */
    int64_t started, finished;
    /* number of operations with hidden parameters, which are not among their inputs, that the backward pass has not run
     * yet */
    int64_t hidden;
    float *memory;
    int64_t elements; /* upper bound of the elements in `memory` */
    /* memory that all ranks share; NULL: each rank computes the whole step */
    attn__shared *shared;
    bool movable; /* true: the data pointers of the parameters may change after a step */
    /* copies of the untrained tensors that the forward pass changes, such as running statistics */
    attn_named_list still;
    bool open; /* true: a step has begun and is not finished; `still` has the state before this step */
    const attn_named_list *parameters;
    /* optimizer state, with the same number of tensors for each parameter; NULL: each rank computes whole steps */
    const attn_named_list *state;
    double totals[ATTN__ALL_REDUCE_TOTALS];
    attn__ranks_request totals_request;
    attn_status status;
    double waited, listened; /* waited: seconds spent waiting; listened: time of the last poll */
};

/* Determines the order of the slots from the first tape, divides the slots into buckets, and chooses the memory of the
 * buckets. */
attn_status attn__all_reduce_order(attn__all_reduce *all_reduce, const attn_tape *tape);

/* Returns whether x's data may move to another address. They may not if other code already has a reference to the
 * memory, because this reference would have the old address after a step. */
bool attn__shared_may_move(const attn_tensor *x);
/* Makes memory that all ranks share, in which this rank has its buckets. If sharing is not possible, all_reduce->shared
 * stays NULL. */
attn_status attn__shared_create(attn__all_reduce *all_reduce);
/* Moves the parameters and the optimizer's state into shared memory. Must be called in the first pass, after the places
 * of the gradients were determined. */
attn_status attn__shared_adopt(attn__all_reduce *all_reduce);
void attn__shared_destroy(attn__all_reduce *all_reduce);
void attn__shared_begin(attn__all_reduce *all_reduce);
void attn__shared_send(attn__all_reduce *all_reduce, int64_t bucket);
/* If all ranks have filled this bucket, adds up this rank's part of the bucket and returns true. Otherwise returns
 * false. After it returned true, it must not be called again for this bucket in the same step. */
bool attn__shared_test(attn__all_reduce *all_reduce, int64_t bucket);
attn_status attn__shared_wait(attn__all_reduce *all_reduce, int64_t bucket);
/* Adds up the totals, and the squares of all gradients, over the ranks. Must be called after the last bucket. */
attn_status attn__shared_finish(attn__all_reduce *all_reduce);

#endif
