/* SPDX-License-Identifier: MIT
 * Implements blocks with reference counts, and the pool. To allocate a block, the pool splits the smallest idle block
 * that is large enough. A released block is merged with idle neighbours. Small blocks have chunks of their own, because
 * they would otherwise fragment the blocks that the large tensors of the next step need. */
#include "tensor/storage.h"

#include "base/system.h"

/* HEADER: offset of the data in a block. It is one cache line, so that the data are as aligned as the chunk. */
enum { HEADER = 64, SMALL = 256 * 1024, SMALL_CHUNK = 512 * 1024, LEAST_SMALL = 256, LEAST_LARGE = 64 * 1024 };
_Static_assert(sizeof(attn__storage) <= HEADER, "the header of a block must fit before its data");

/* Number of lists of idle blocks. There are eight lists for each power of two, separately for small and large
 * chunks. */
enum { BINS = 64 * 8 };

struct attn__pool {
    attn_context *context;
    attn__storage *idle[2][BINS];
    size_t held;
    size_t used, most; /* bytes of the blocks in use: now, and the maximum so far */
    size_t live;       /* blocks in use */
    bool closed;
};

/* Returns the index of the list for blocks of this size. The size must be at least 8. */
static int bin_of(size_t size)
{
    int power = 63 - __builtin_clzll((unsigned long long)size);
    return power * 8 + (int)((size >> (power - 3)) & 7);
}

static attn__storage **list_of(const attn__storage *block)
{
    return &block->pool->idle[block->small][bin_of(block->size)];
}

static void list_add(attn__storage *block)
{
    attn__storage **list = list_of(block);
    block->previous = NULL;
    block->next = *list;
    if (*list)
        (*list)->previous = block;
    *list = block;
}

static void list_remove(attn__storage *block)
{
    if (block->previous)
        block->previous->next = block->next;
    else
        *list_of(block) = block->next;
    if (block->next)
        block->next->previous = block->previous;
}

static attn__storage *neighbour_above(const attn__storage *block)
{
    return block->last ? NULL : (attn__storage *)(uintptr_t)((const char *)block + HEADER + block->size);
}

static attn__storage *best_fit(attn__pool *pool, bool small, size_t size)
{
    attn__storage *best = NULL;
    for (int bin = bin_of(size); bin < BINS && !best; bin++) {
        for (attn__storage *block = pool->idle[small][bin]; block; block = block->next) {
            if (block->size >= size && (!best || block->size < best->size))
                best = block;
            if (best && best->size == size)
                break;
        }
    }
    return best;
}

/* The rest becomes an idle block if it is large enough for one. */
static void split(attn__storage *block, size_t size)
{
    size_t least = block->small ? LEAST_SMALL : LEAST_LARGE, rest = block->size - size;
    if (rest < HEADER + least)
        return;
    attn__storage *above = neighbour_above(block), *made = (attn__storage *)(uintptr_t)((char *)block + HEADER + size);
    *made = (attn__storage){.context = block->context,
                            .pool = block->pool,
                            .before = block,
                            .size = rest - HEADER,
                            .last = block->last,
                            .small = block->small};
    if (above)
        above->before = made;
    block->size = size;
    block->last = false;
    list_add(made);
}

/* Merges a block with the block after it in memory. Neither may be in a list of idle blocks. */
static void join(attn__storage *block, const attn__storage *above)
{
    block->size += HEADER + above->size;
    block->last = above->last;
    attn__storage *next = neighbour_above(block);
    if (next)
        next->before = block;
}

static attn__storage *chunk_create(attn_context *context, attn__pool *pool, size_t size, bool small)
{
    attn__storage *block = attn__alloc(context, attn__size_add(size, HEADER));
    if (block)
        *block = (attn__storage){.context = context, .pool = pool, .size = size, .last = true, .small = small};
    return block;
}

static bool is_whole_chunk(const attn__storage *block)
{
    return !block->before && block->last;
}

/* Returns a chunk to the context. All of the chunk must be idle. */
static void give_back(attn__storage *block)
{
    list_remove(block);
    block->pool->held -= block->size;
    attn__free(block->context, block);
}

static attn__storage *largest_chunk(const attn__pool *pool)
{
    attn__storage *largest = NULL;
    for (int i = 2 * BINS - 1; i >= 0; i--) {
        for (attn__storage *block = pool->idle[i / BINS][i % BINS]; block; block = block->next)
            if (is_whole_chunk(block) && (!largest || block->size > largest->size))
                largest = block;
    }
    return largest;
}

static attn__storage *pool_grow(attn__pool *pool, size_t size, bool small)
{
    size_t most = pool->used + size > pool->most ? pool->used + size : pool->most;
    attn__storage *chunk;
    while ((double)(pool->held + size) > ATTN__POOL_SLACK * (double)most && (chunk = largest_chunk(pool)))
        give_back(chunk);
    chunk = chunk_create(pool->context, pool, size, small);
    pool->held += chunk ? size : 0;
    return chunk;
}

static attn__storage *pool_take(attn__pool *pool, size_t size)
{
    size = size < LEAST_SMALL ? LEAST_SMALL : (size + HEADER - 1) / HEADER * HEADER;
    bool small = size < SMALL;
    attn__storage *block = best_fit(pool, small, size);
    if (block)
        list_remove(block);
    else
        block = pool_grow(pool, small ? SMALL_CHUNK : size, small);
    if (!block)
        return NULL;
    split(block, size);
    pool->live++;
    pool->used += block->size;
    pool->most = pool->used > pool->most ? pool->used : pool->most;
    return block;
}

static void pool_put(attn__storage *block)
{
    attn__pool *pool = block->pool;
    pool->used -= block->size;
    attn__storage *above = neighbour_above(block), *below = block->before;
    if (above && above->refs == 0) {
        list_remove(above);
        join(block, above);
    }
    if (below && below->refs == 0) {
        list_remove(below);
        join(below, block);
        block = below;
    }
    pool->live--;
    list_add(block);
    if (pool->closed && is_whole_chunk(block))
        give_back(block);
    if (pool->closed && pool->live == 0)
        attn__free(pool->context, pool);
}

attn__storage *attn__storage_create(attn_context *context, attn__pool *pool, size_t size)
{
    if (size > SIZE_MAX / 2) {
        attn__fail_memory(context, SIZE_MAX);
        return NULL;
    }
    attn__storage *storage = pool ? pool_take(pool, size) : chunk_create(context, NULL, size, false);
    if (!storage)
        return NULL;
    storage->refs = 1;
    storage->saves = 0;
    storage->leaf = false;
    return storage;
}

void attn__storage_ref(attn__storage *storage)
{
    storage->refs++;
}

void attn__storage_unref(attn__storage *storage)
{
    if (!storage || --storage->refs > 0)
        return;
    if (storage->release)
        storage->release(storage);
    else if (storage->pool)
        pool_put(storage);
    else
        attn__free(storage->context, storage);
}

void *attn__storage_data(attn__storage *storage)
{
    return (char *)storage + HEADER;
}

attn__pool *attn__pool_create(attn_context *context)
{
    attn__pool *pool = attn__alloc_zero(context, sizeof *pool);
    if (pool)
        pool->context = context;
    return pool;
}

void attn__pool_trim(attn__pool *pool)
{
    for (int i = 0; i < 2 * BINS; i++) {
        for (attn__storage *block = pool->idle[i / BINS][i % BINS], *next; block; block = next) {
            next = block->next;
            if (!is_whole_chunk(block))
                continue;
            /* release the pages now, because the allocator may keep the freed memory */
            attn__system_drop_pages(attn__storage_data(block), block->size);
            give_back(block);
        }
    }
}

void attn__pool_destroy(attn__pool *pool)
{
    if (!pool)
        return;
    attn__pool_trim(pool);
    pool->closed = true;
    if (pool->live == 0)
        attn__free(pool->context, pool);
}
