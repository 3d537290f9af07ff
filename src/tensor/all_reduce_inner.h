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
    int64_t index; /* index in the list of exchanged parameters */
    int64_t bucket;
    int64_t at;   /* offset of the gradient in its bucket, in elements */
    int64_t flag; /* offset in the bucket of a flag; the sum of this flag tells whether any rank has this gradient */
    int64_t uses; /* number of operations with this parameter whose backward pass is not done yet */
} attn__slot;

typedef struct attn__bucket {
    int64_t first, n; /* the bucket has slots first to first + n - 1 */
    int64_t open;     /* number of slots of the bucket that are not final yet */
    float *data;      /* the gradients, then one flag per gradient, then padding to a whole cache line */
    int64_t elements; /* number of elements of the gradients */
    int64_t size;     /* number of elements of gradients, flags and padding together */
    attn__ranks_request request;
    bool done;
} attn__bucket;

typedef struct attn__shared attn__shared;

struct attn__all_reduce {
    attn_context *context;
    size_t bytes;
    attn__slot *slots; /* the slots; if `ordered` is true, in the order in which they become final */
    int64_t nslots;
    bool ordered;
    attn__bucket *buckets;
    int64_t nbuckets;
    /* number of buckets of this step whose sum has started, and whose sum has finished; both count in order */
    int64_t started, finished;
    /* number of operations with hidden parameters (not among the inputs) whose backward pass is not done yet */
    int64_t hidden;
    float *memory;    /* memory of all buckets */
    int64_t elements; /* upper bound of the number of elements of `memory` */
    /* memory that all ranks share, so that each rank computes a part of each step; NULL: none */
    attn__shared *shared;
    bool movable; /* true: the data pointers of the parameters may change after a step */
    /* copies of the untrained tensors that the forward pass changes, such as running statistics */
    attn_named_list still;
    bool open; /* true: a step has begun and is not finished; `still` holds the state before this step */
    const attn_named_list *parameters;
    /* optimizer state: the same number of tensors for each parameter; NULL: each rank computes whole steps */
    const attn_named_list *state;
    double totals[ATTN__ALL_REDUCE_TOTALS];
    attn__ranks_request totals_request;
    attn_status status;
    double waited, listened; /* waited: seconds spent waiting; listened: time of the last poll */
};

/* Uses the first tape to determine the order of the slots, to divide them into buckets, and to place the buckets in
 * memory. */
attn_status attn__all_reduce_order(attn__all_reduce *all_reduce, const attn_tape *tape);

/* Returns whether x's data may move to another address. They may not if another reference to the memory exists
 * before a pass, because this reference would use the old address after a step. */
bool attn__shared_may_move(const attn_tensor *x);
/* Makes memory that all ranks share, which contains this rank's buckets. If sharing is not possible,
 * all_reduce->shared stays NULL. */
attn_status attn__shared_create(attn__all_reduce *all_reduce);
/* Moves the parameters and the optimizer's state into shared memory. Called during the first pass, when the places
 * are known. */
attn_status attn__shared_adopt(attn__all_reduce *all_reduce);
void attn__shared_destroy(attn__all_reduce *all_reduce);
void attn__shared_begin(attn__all_reduce *all_reduce);
void attn__shared_send(attn__all_reduce *all_reduce, int64_t bucket);
/* If all ranks have filled bucket `bucket`, adds up this rank's part of it. Returns whether this part is added up. */
bool attn__shared_test(attn__all_reduce *all_reduce, int64_t bucket);
attn_status attn__shared_wait(attn__all_reduce *all_reduce, int64_t bucket);
/* Adds up the totals and the squares of all gradients over the ranks. Called after the last bucket. */
attn_status attn__shared_finish(attn__all_reduce *all_reduce);

#endif
