/* SPDX-License-Identifier: MIT
 *
 * aside.h - a hook that a product calls after each register tile, about every thousand cycles, for prefetching: a few
 * cache lines at a time overlap with the multiply-adds, where all lines at once would stall them.
 */
#ifndef ATTN_KERNELS_ASIDE_H
#define ATTN_KERNELS_ASIDE_H

#include <stddef.h>

typedef struct attn__aside {
    void (*call)(void *with); /* NULL: nothing */
    void *with;
} attn__aside;

static inline void attn__aside_do(attn__aside aside)
{
    if (aside.call)
        aside.call(aside.with);
}

#endif
