/* SPDX-License-Identifier: MIT
 *
 * storage.h - the memory of tensors. Blocks have reference counts. A pool keeps freed blocks for the next step, so that
 * a step allocates nothing if it has the shapes of the step before. */
#ifndef ATTN_TENSOR_STORAGE_H
#define ATTN_TENSOR_STORAGE_H

#include "base/context.h"

typedef struct attn__pool attn__pool;

/* Limits the memory that the pool holds, as a multiple of the largest memory ever in use at once. When new memory is
 * taken, idle chunks above the limit are returned to the context. Without a limit, steps of many different shapes would
 * each leave their own idle blocks. The factor is above 1, because idle memory may be in pieces that are too small for
 * a request. */
#define ATTN__POOL_SLACK 2.0

/* Header of a block. The block's data follow it in memory. A pool divides chunks of memory into blocks. Each block
 * points to its neighbours. */
typedef struct attn__storage {
    attn_context *context;
    attn__pool *pool; /* pool to which the block returns; NULL: it returns to the context */
    /* neighbours in the list of idle blocks, if this block is idle */
    struct attn__storage *next, *previous;
    /* the block directly before this one in memory; NULL: this is the first block of its chunk */
    struct attn__storage *before;
    size_t size;
    /* number of references; 0: the block is idle; atomic, because several tapes may read one parameter */
    atomic_int refs;
    /* references from nodes that wait for the backward pass; unless it is 0, the data must not change */
    unsigned saves : 29;
    /* true: the data belong to a leaf, which is a tensor that gets a gradient and is not the result of an operation; no
     * operation may overwrite the data of a leaf */
    unsigned leaf : 1;
    unsigned last : 1;  /* true: this is the last block of its chunk */
    unsigned small : 1; /* true: the block's chunk is for small blocks */
    /* frees a block whose data do not belong to a pool or to the context; NULL: the block returns to `pool` */
    void (*release)(struct attn__storage *storage);
} attn__storage;

/* Returns a block with one reference, whose data are not cleared. Returns NULL and records ATTN_ERROR_MEMORY if
 * there is no memory. If `pool` is NULL, the memory comes from the context. */
attn__storage *attn__storage_create(attn_context *context, attn__pool *pool, size_t size);
void attn__storage_ref(attn__storage *storage);
void attn__storage_unref(attn__storage *storage); /* accepts NULL */
void *attn__storage_data(attn__storage *storage);

attn__pool *attn__pool_create(attn_context *context);
/* Returns idle memory to the context. Useful before steps that need much less memory than the steps before. */
void attn__pool_trim(attn__pool *pool);
/* Returns idle memory to the context. Blocks with references stay valid, and their chunk is returned when its last
 * block is released. `pool` may be NULL. */
void attn__pool_destroy(attn__pool *pool);

#endif
