/* SPDX-License-Identifier: MIT
 *
 * arena.h - an arena, which gives out arrays from one block of memory. If it has no block, it only counts the bytes
 * that the arrays need.
 */
#ifndef ATTN_BASE_ARENA_H
#define ATTN_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct attn__arena {
    char *base;
    size_t used;
} attn__arena;

/* Takes `count` elements of `size` bytes at the next multiple of 64 bytes. If the bytes overflow, `used` becomes
 * SIZE_MAX and stays so, and attn__alloc refuses that size. */
static inline void *attn__arena_take(attn__arena *arena, int64_t count, size_t size)
{
    void *at = arena->base ? arena->base + arena->used : NULL;
    size_t bytes = 0;
    bool fits = count >= 0 && !__builtin_mul_overflow((size_t)count, size, &bytes) && bytes <= SIZE_MAX - 63 &&
                !__builtin_add_overflow(arena->used, (bytes + 63) / 64 * 64, &bytes);
    arena->used = fits ? bytes : SIZE_MAX;
    return at;
}

static inline float *attn__arena_floats(attn__arena *arena, int64_t count)
{
    return (float *)attn__arena_take(arena, count, sizeof(float));
}

static inline int64_t *attn__arena_offsets(attn__arena *arena, int64_t count)
{
    return (int64_t *)attn__arena_take(arena, count, sizeof(int64_t));
}

#endif
