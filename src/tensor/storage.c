/* SPDX-License-Identifier: MIT */
#include "tensor/storage.h"

/* The data start one cache line after the header, aligned like the block. */
enum { HEADER = 64, SMALLEST = 512 };
_Static_assert(sizeof(attn__storage) <= HEADER, "the header of a block must fit before its data");

/* Rounds up to the next of eight sizes between two powers of two; the bin of that size goes to *bin. */
static size_t bin_size(size_t size, int *bin)
{
    if (size < SMALLEST)
        size = SMALLEST;
    int power = 63 - __builtin_clzll((unsigned long long)(size - 1)); /* 2^power < size <= 2^(power + 1) */
    size_t step = (size_t)1 << (power - 3);
    size_t steps = (size - 1) / step + 1; /* 9 to 16 */
    *bin = power * 8 + (int)(steps - 9);
    return steps * step;
}

/* A block of the right bin, or of one of the next two, which are at most a quarter larger. */
static attn__storage *take_idle(attn__pool *pool, int bin)
{
    for (int i = bin; i < bin + 3 && i < ATTN__POOL_BINS; i++) {
        attn__storage *storage = pool->bins[i];
        if (storage) {
            pool->bins[i] = storage->next;
            return storage;
        }
    }
    return NULL;
}

attn__storage *attn__storage_create(attn_context *context, attn__pool *pool, size_t size)
{
    attn__storage *storage = NULL;
    if (size > SIZE_MAX / 2) {
        attn__fail_memory(context, SIZE_MAX);
        return NULL;
    }
    if (pool) {
        int bin;
        size = bin_size(size, &bin);
        storage = take_idle(pool, bin);
    }
    if (!storage) {
        storage = attn__alloc(context, attn__size_add(size, HEADER));
        if (!storage)
            return NULL;
        *storage = (attn__storage){.context = context, .pool = pool, .size = size};
    }
    storage->refs = 1;
    storage->saves = 0;
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
    if (!storage->pool) {
        attn__free(storage->context, storage);
        return;
    }
    int bin;
    bin_size(storage->size, &bin);
    storage->next = storage->pool->bins[bin];
    storage->pool->bins[bin] = storage;
}

void *attn__storage_data(attn__storage *storage)
{
    return (char *)storage + HEADER;
}

void attn__pool_clear(attn__pool *pool)
{
    for (int i = 0; i < ATTN__POOL_BINS; i++) {
        while (pool->bins[i]) {
            attn__storage *storage = pool->bins[i];
            pool->bins[i] = storage->next;
            attn__free(pool->context, storage);
        }
    }
}
