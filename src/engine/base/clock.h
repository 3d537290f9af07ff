/* SPDX-License-Identifier: MIT
 *
 * clock.h - measures elapsed seconds. Elapsed times are used only for reported speeds and estimates. They never
 * influence results. */
#ifndef ATTN_BASE_CLOCK_H
#define ATTN_BASE_CLOCK_H

#include <time.h>

/* Returns the seconds of a monotonic clock. */
static inline double attn__now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The result is never negative, even if the clock of a virtual machine jumped back. */
static inline double attn__seconds_since(double begin)
{
    double passed = attn__now() - begin;
    return passed > 0 ? passed : 0;
}

#endif
