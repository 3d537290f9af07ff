/* SPDX-License-Identifier: MIT
 * clock.h - seconds that passed, for speeds and estimates: never anything that results depend on. */
#ifndef ATTN_BASE_CLOCK_H
#define ATTN_BASE_CLOCK_H

#include <time.h>

/* Time of a monotonic clock. */
static inline double attn__now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The time since `begin` is never negative, even if the clock of a virtual machine jumped back. */
static inline double attn__seconds_since(double begin)
{
    double passed = attn__now() - begin;
    return passed > 0 ? passed : 0;
}

#endif
