/* SPDX-License-Identifier: MIT */
#ifndef ATTN_BASE_INTEGERS_H
#define ATTN_BASE_INTEGERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline int64_t attn__min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t attn__max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Clamps x to [low, high]. low must be at most high. */
static inline int64_t attn__clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

static inline int64_t attn__add_saturated(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? (b > 0 ? INT64_MAX : INT64_MIN) : sum;
}

/* Rounds n >= 0 up to a multiple of to >= 1. */
static inline int64_t attn__round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* Returns a / b rounded towards minus infinity; b > 0. attn__ceil_div rounds towards plus infinity. */
static inline int64_t attn__floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

static inline int64_t attn__ceil_div(int64_t a, int64_t b)
{
    return -attn__floor_div(-a, b);
}

/* Returns the greatest common divisor of a and b. For b = 0, this is a. */
static inline int64_t attn__gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Returns whether `size` bytes are all zero. It serves to check that reserved fields, which later versions may use, are
 * zero. */
static inline bool attn__all_zero(const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    unsigned set = 0;
    for (size_t i = 0; i < size; i++)
        set |= at[i];
    return set == 0;
}

#endif
