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
    int64_t index; /* index among the exchanged parameters, in the order of the list */
    int64_t bucket;
    int64_t at;   /* offset of the gradient in the bucket */
    int64_t flag; /* offset in the bucket of the flag that tells whether any rank has this gradient */
    int64_t uses; /* operations on the tape whose backward pass is not done yet */
} attn__slot;

typedef struct attn__bucket {
    int64_t first, n; /* slots first to first + n - 1, in the order of places */
    int64_t open;     /* slots that are not final yet */
    float *data;      /* the gradients, then a flag for each gradient, then padding to a whole cache line */
    int64_t elements; /* number of elements of the gradients */
    int64_t size;     /* number of all elements */
    attn__ranks_request request;
    bool done;
} attn__bucket;

typedef struct attn__shared attn__shared;

struct attn__all_reduce {
    attn_context *context;
    size_t bytes;
    attn__slot *slots; /* once `ordered`: in the order in which they become final */
    int64_t nslots;
    bool ordered;
    attn__bucket *buckets;
    int64_t nbuckets;
    int64_t started, finished; /* buckets of this step that have started and finished, both in order */
    /* operations with parameters outside of their inputs, whose backward pass is not done yet */
    int64_t hidden;
    float *memory;             /* memory of all buckets */
    int64_t elements;          /* upper bound of the elements of `memory` */
    /* memory that the ranks share, so that each rank takes a part of the steps; NULL: no shared memory */
    attn__shared *shared;
    bool movable;          /* the address of parameters may change after a step */
    attn_named_list still; /* copies of untrained tensors that a forward pass changes */
    bool open;             /* a step was begun and not finished: `still` is the state before it */
    const attn_named_list *parameters;
    /* tensors of the optimizer, equally many for each parameter; NULL: steps are not shared */
    const attn_named_list *state;
    double totals[ATTN__ALL_REDUCE_TOTALS];
    attn__ranks_request totals_request;
    attn_status status;
    double waited, listened; /* waited: seconds; listened: time of the last poll */
};

/* Determines the order of the slots, the buckets and their memory from the first tape. */
attn_status attn__all_reduce_order(attn__all_reduce *all_reduce, const attn_tape *tape);

/* Returns whether no other reference to the tensor's memory exists before a pass. Such a reference would use the old
 * address after a step. */
bool attn__shared_may_move(const attn_tensor *x);
/* Makes memory that all ranks share, with this rank's buckets. If no memory can be shared, all_reduce->shared stays
 * NULL. */
attn_status attn__shared_create(attn__all_reduce *all_reduce);
/* Moves the parameters and the optimizer's state into shared memory. Called in a first pass, when places are known. */
attn_status attn__shared_adopt(attn__all_reduce *all_reduce);
void attn__shared_destroy(attn__all_reduce *all_reduce);
void attn__shared_begin(attn__all_reduce *all_reduce);
void attn__shared_send(attn__all_reduce *all_reduce, int64_t bucket);
/* Adds up this rank's part of a bucket if all ranks have sent the bucket. Returns whether the part is added up. */
bool attn__shared_test(attn__all_reduce *all_reduce, int64_t bucket);
attn_status attn__shared_wait(attn__all_reduce *all_reduce, int64_t bucket);
/* Adds up the totals, and the squares of all gradients, after the last bucket. */
attn_status attn__shared_finish(attn__all_reduce *all_reduce);

#endif
