/* SPDX-License-Identifier: MIT
 *
 * all_reduce_inner.h - what the files of the all-reduce share.
 */
#ifndef ATTN_TENSOR_ALL_REDUCE_INNER_H
#define ATTN_TENSOR_ALL_REDUCE_INNER_H

#include "dist/ranks.h"
#include "tensor/all_reduce.h"

typedef struct attn__slot {
    attn_tensor *parameter;
    int64_t index; /* among those exchanged, in the order of the list */
    int64_t bucket;
    int64_t at;   /* of the gradient in the bucket */
    int64_t flag; /* where the bucket tells whether any rank has a gradient of it */
    int64_t uses; /* operations on the tape whose backward pass is not done yet */
} attn__slot;

typedef struct attn__bucket {
    int64_t first, n; /* slots, in the order of places */
    int64_t open;     /* slots that are not final yet */
    float *data;      /* gradients one behind the other, then a flag for each, then nothing up to a whole cache line */
    int64_t elements; /* of the gradients */
    int64_t size;     /* of all */
    attn__ranks_request request;
    bool done;
} attn__bucket;

typedef struct attn__shared attn__shared;

struct attn__all_reduce {
    attn_context *context;
    size_t bytes;
    attn__slot *slots; /* in the order in which they become final, once `ordered` */
    int64_t nslots;
    bool ordered;
    attn__bucket *buckets;
    int64_t nbuckets;
    int64_t started, finished; /* buckets of this step; they start and are waited for in their order */
    int64_t hidden;            /* operations with unseen parameters whose backward pass is not done yet */
    float *memory;             /* of all buckets */
    int64_t elements;          /* of it, at most */
    attn__shared *shared;      /* the ranks share memory, and each takes its part of the steps; NULL: not so */
    bool movable;              /* the parameters may be at another address after a step */
    attn_named_list still;     /* copies of what a forward pass changes that is no trained parameter */
    bool open;                 /* a step was begun and not finished: `still` is the state before it */
    const attn_named_list *parameters;
    const attn_named_list *state; /* the optimizer's, as many for each parameter; NULL: it takes no part in steps */
    double totals[ATTN__ALL_REDUCE_TOTALS];
    attn__ranks_request totals_request;
    attn_status status;
    double waited, listened; /* seconds; when */
};

/* Defined from the first tape: the order of the slots, the buckets and their memory. */
attn_status attn__all_reduce_order(attn__all_reduce *all_reduce, const attn_tape *tape);

/* Whether no other reference to the tensor's memory exists before a pass. Such a reference would use the old address
 * after a step. */
bool attn__shared_may_move(const attn_tensor *x);
/* Makes memory that all ranks share, with this rank's buckets. Without shared memory all_reduce->shared stays NULL. */
attn_status attn__shared_create(attn__all_reduce *all_reduce);
/* Moves the parameters and the optimizer's state into shared memory. Called in a first pass, when places are known. */
attn_status attn__shared_adopt(attn__all_reduce *all_reduce);
void attn__shared_destroy(attn__all_reduce *all_reduce);
void attn__shared_begin(attn__all_reduce *all_reduce);
void attn__shared_send(attn__all_reduce *all_reduce, int64_t bucket);
/* Adds up this rank's part of a bucket, if all have sent it. */
bool attn__shared_test(attn__all_reduce *all_reduce, int64_t bucket);
attn_status attn__shared_wait(attn__all_reduce *all_reduce, int64_t bucket);
/* After the last bucket: sums of totals, and of the squares. */
attn_status attn__shared_finish(attn__all_reduce *all_reduce);

#endif
