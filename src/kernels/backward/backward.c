/* SPDX-License-Identifier: MIT
 *
 * backward.c - which of the backward kernels to use.
 */
#include "kernels/backward/backward.h"

#define ATTN__KERNEL(NAME, name) extern const attn__backward_kernel attn__backward_##name;
#include "kernels/kernels.inc"
#undef ATTN__KERNEL

static const attn__backward_kernel *const kernels[] = {
#define ATTN__KERNEL(NAME, name) &attn__backward_##name,
#include "kernels/kernels.inc"
#undef ATTN__KERNEL
};

const attn__backward_kernel *attn__backward_for(attn__isa isa)
{
    int i = 0;
    while (kernels[i]->isa > isa)
        i++;
    return kernels[i];
}
