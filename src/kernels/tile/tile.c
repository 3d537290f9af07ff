/* SPDX-License-Identifier: MIT
 *
 * tile.c - which tile kernel to use.
 */
#include "kernels/tile/tile.h"

#define ATTN__KERNEL(NAME, name) extern const attn__tile_kernel attn__tile_##name;
#include "kernels/kernels.inc"
#undef ATTN__KERNEL

static const attn__tile_kernel *const kernels[] = {
#define ATTN__KERNEL(NAME, name) &attn__tile_##name,
#include "kernels/kernels.inc"
#undef ATTN__KERNEL
};

const attn__tile_kernel *attn__tile_for(attn__isa isa)
{
    int i = 0;
    while (kernels[i]->isa > isa)
        i++;
    return kernels[i];
}
