/* SPDX-License-Identifier: MIT
 *
 * channel_norm.c - chooses the kernel for an instruction set.
 */
#include "kernels/channel_norm/channel_norm.h"

#define KERNEL_TYPE    attn__channel_norm_kernel
#define KERNEL_OF(set) attn__channel_norm_##set
#include "simd/choice_tmpl.h"

const attn__channel_norm_kernel *attn__channel_norm_for(attn__isa isa)
{
    return choose(isa);
}
