/* SPDX-License-Identifier: MIT
 *
 * channels.c - which channels kernel to use.
 */
#include "kernels/channels/channels.h"

#define ATTN__KERNEL(NAME, name) extern const attn__channels_kernel attn__channels_##name;
#include "kernels/kernels.inc"
#undef ATTN__KERNEL

static const attn__channels_kernel *const kernels[] = {
#define ATTN__KERNEL(NAME, name) &attn__channels_##name,
#include "kernels/kernels.inc"
#undef ATTN__KERNEL
};

const attn__channels_kernel *attn__channels_for(attn__isa isa)
{
    int i = 0;
    while (kernels[i]->isa > isa)
        i++;
    return kernels[i];
}
