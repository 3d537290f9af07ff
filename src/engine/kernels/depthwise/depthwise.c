/* SPDX-License-Identifier: MIT
 *
 * depthwise.c - chooses the kernel for an instruction set.
 */
#include "kernels/depthwise/depthwise.h"

#define KERNEL_TYPE    attn__depthwise_kernel
#define KERNEL_OF(set) attn__depthwise_##set
#include "simd/choice_tmpl.h"

const attn__depthwise_kernel *attn__depthwise_for(attn__isa isa)
{
    return choose(isa);
}
