/* SPDX-License-Identifier: MIT
 *
 * tile_hook.h - a hook that a product calls after each register tile, about every thousand cycles. The hook prefetches
 * a few cache lines, while the multiply-adds continue. Prefetching all lines at once would delay the multiply-adds.
 */
#ifndef ATTN_KERNELS_TILE_HOOK_H
#define ATTN_KERNELS_TILE_HOOK_H

#include <stddef.h>

typedef struct attn__tile_hook {
    void (*call)(void *with); /* NULL: no call */
    void *with;
} attn__tile_hook;

static inline void attn__tile_hook_run(attn__tile_hook hook)
{
    if (hook.call)
        hook.call(hook.with);
}

#endif
