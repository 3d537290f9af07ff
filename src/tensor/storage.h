/* SPDX-License-Identifier: MIT
 *
 * storage.h - the memory of tensors: counted references, and a pool that keeps freed blocks for the next step,
 * so that equal steps allocate nothing.
 */
#ifndef ATTN_TENSOR_STORAGE_H
#define ATTN_TENSOR_STORAGE_H

#include "base/context.h"

typedef struct attn__pool attn__pool;

/* Steps of many different shapes must not each leave their own blocks behind: when new memory is taken, idle
 * chunks are given back until no more than this is held for each byte that was ever in use at once (equal steps
 * need some: idle memory may be in pieces that are too small). */
#define ATTN__POOL_SLACK 2.0

/* A block; its data follow it.  A pool cuts chunks of memory into blocks, each of which points to its neighbours. */
typedef struct attn__storage {
    attn_context *context;
    attn__pool *pool;                      /* where it is returned when its references end; NULL: back to the context */
    struct attn__storage *next, *previous; /* while idle: in the list of its size */
    struct attn__storage *before;          /* the neighbour below; NULL: the first of its chunk */
    size_t size;                           /* of the data */
    atomic_int refs;                       /* 0: idle; several tapes may look at one parameter */
    unsigned saves : 29; /* of these, those of nodes that wait for the backward pass: the data must not change */
    unsigned leaf : 1;   /* holds a tensor that gets a gradient and that no operation made: no operation writes here */
    unsigned last : 1;   /* of its chunk */
    unsigned small : 1;  /* of a chunk for small blocks */
    void (*release)(struct attn__storage *storage); /* frees it where its data are of another kind; NULL: as above */
} attn__storage;

/* A block with one reference, not cleared; NULL (ATTN_ERROR_MEMORY noted).  `pool` NULL: from the context. */
attn__storage *attn__storage_create(attn_context *context, attn__pool *pool, size_t size);
void attn__storage_ref(attn__storage *storage);
void attn__storage_unref(attn__storage *storage); /* NULL is allowed */
void *attn__storage_data(attn__storage *storage);

/* NULL without memory (noted). */
attn__pool *attn__pool_create(attn_context *context);
/* Returns idle memory to the context, before steps that need much less memory. */
void attn__pool_trim(attn__pool *pool);
/* Gives idle memory back to the context; blocks that are still referred to stay valid, and theirs follows when the last
 * of their chunk is released.  NULL is allowed. */
void attn__pool_destroy(attn__pool *pool);

#endif
