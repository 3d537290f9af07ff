/* SPDX-License-Identifier: MIT
 *
 * taps.c - which taps kernel to use.
 */
#include "kernels/taps/taps.h"

#define ATTN__KERNEL(NAME, name) extern const attn__taps_kernel attn__taps_##name;
#include "kernels/kernels.inc"
#undef ATTN__KERNEL

static const attn__taps_kernel *const kernels[] = {
#define ATTN__KERNEL(NAME, name) &attn__taps_##name,
#include "kernels/kernels.inc"
#undef ATTN__KERNEL
};

const attn__taps_kernel *attn__taps_for(attn__isa isa)
{
    int i = 0;
    while (kernels[i]->isa > isa)
        i++;
    return kernels[i];
}
