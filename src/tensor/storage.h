/* SPDX-License-Identifier: MIT
 *
 * storage.h - the memory of tensors. Blocks have reference counts. A pool keeps freed blocks for the next step, so that
 * steps of equal shapes allocate nothing.
 */
#ifndef ATTN_TENSOR_STORAGE_H
#define ATTN_TENSOR_STORAGE_H

#include "base/context.h"

typedef struct attn__pool attn__pool;

/* Limits the idle memory of the pool. When new memory is taken, idle chunks are returned to the context until the pool
 * holds at most this multiple of the largest memory ever in use at once. Otherwise steps of many different shapes would
 * each leave their own blocks. Steps of equal shapes need some idle memory too, because it may be in pieces that are
 * too small. */
#define ATTN__POOL_SLACK 2.0

/* A block, whose data follow this header. A pool divides chunks of memory into blocks, and each block points to its
 * neighbours. */
typedef struct attn__storage {
    attn_context *context;
    attn__pool *pool;                      /* pool to which the block returns; NULL: it returns to the context */
    struct attn__storage *next, *previous; /* in an idle block: neighbours in the list of its size */
    struct attn__storage *before;          /* the block below in memory; NULL: the first block of its chunk */
    size_t size;                           /* bytes of the data */
    atomic_int refs;                       /* 0: idle; atomic because several tapes may read one parameter */
    unsigned saves : 29; /* references of nodes that wait for the backward pass: the data must not change */
    /* holds a tensor that gets a gradient and is no result of an operation: no operation writes to it */
    unsigned leaf : 1;
    unsigned last : 1;  /* the last block of its chunk */
    unsigned small : 1; /* in a chunk for small blocks */
    /* frees a block with data from elsewhere; NULL: the block returns to `pool` */
    void (*release)(struct attn__storage *storage);
} attn__storage;

/* Returns a block with one reference, not cleared. Returns NULL and records ATTN_ERROR_MEMORY if there is no memory. If
 * `pool` is NULL, the memory comes from the context. */
attn__storage *attn__storage_create(attn_context *context, attn__pool *pool, size_t size);
void attn__storage_ref(attn__storage *storage);
void attn__storage_unref(attn__storage *storage); /* accepts NULL */
void *attn__storage_data(attn__storage *storage);

/* Creates a pool. Returns NULL and records an error if there is no memory. */
attn__pool *attn__pool_create(attn_context *context);
/* Returns idle memory to the context, before steps that need much less memory. */
void attn__pool_trim(attn__pool *pool);
/* Returns idle memory to the context. Blocks with references stay valid, and a chunk is returned when its last block is
 * released. NULL is allowed. */
void attn__pool_destroy(attn__pool *pool);

#endif
