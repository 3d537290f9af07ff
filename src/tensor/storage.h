/* SPDX-License-Identifier: MIT
 *
 * storage.h - the memory of tensors: counted references, and a pool that keeps freed blocks by size for the
 * next step, so that equal steps allocate nothing.
 */
#ifndef ATTN_TENSOR_STORAGE_H
#define ATTN_TENSOR_STORAGE_H

#include "base/context.h"

enum { ATTN__POOL_BINS = 64 * 8 }; /* eight sizes for each power of two: at most an eighth is wasted */

typedef struct attn__pool attn__pool;

/* A block; its data follow it. */
typedef struct attn__storage {
    attn_context *context;
    attn__pool *pool; /* where it goes when nobody refers to it; NULL: back to the context */
    struct attn__storage *next;
    size_t size;
    int refs;
    int saves; /* of these, those of nodes that wait for the backward pass: the data must not change */
} attn__storage;

struct attn__pool {
    attn_context *context;
    attn__storage *bins[ATTN__POOL_BINS];
};

/* A block with one reference, not cleared; NULL (ATTN_MEMORY noted).  `pool` NULL: from the context. */
attn__storage *attn__storage_create(attn_context *context, attn__pool *pool, size_t size);
void attn__storage_ref(attn__storage *storage);
void attn__storage_unref(attn__storage *storage); /* NULL is allowed */
void *attn__storage_data(attn__storage *storage);

/* Gives every idle block back to the context. */
void attn__pool_clear(attn__pool *pool);

#endif
