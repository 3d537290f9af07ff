/* SPDX-License-Identifier: MIT
 *
 * lanes.c - which lanes kernel to use.
 */
#include "kernels/lanes/lanes.h"

#define ATTN__KERNEL(NAME, name) extern const attn__lanes_kernel attn__lanes_##name;
#include "kernels/kernels.inc"
#undef ATTN__KERNEL

static const attn__lanes_kernel *const kernels[] = {
#define ATTN__KERNEL(NAME, name) &attn__lanes_##name,
#include "kernels/kernels.inc"
#undef ATTN__KERNEL
};

const attn__lanes_kernel *attn__lanes_for(attn__isa isa)
{
    int i = 0;
    while (kernels[i]->isa > isa)
        i++;
    return kernels[i];
}
