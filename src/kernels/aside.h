/* SPDX-License-Identifier: MIT
 *
 * aside.h - something small that a kernel does every thousand cycles or so, such as asking for a few lines of memory:
 * the machine goes on with its multiply-adds meanwhile, where all lines at once would keep them waiting.
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
