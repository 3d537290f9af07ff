/* SPDX-License-Identifier: MIT
 *
 * online_softmax.c - chooses the kernel for an instruction set.
 */
#include "kernels/online_softmax/online_softmax.h"

#define KERNEL_TYPE    attn__online_softmax_kernel
#define KERNEL_OF(set) attn__online_softmax_##set
#include "simd/choice_tmpl.h"

const attn__online_softmax_kernel *attn__online_softmax_for(attn__isa isa)
{
    return choose(isa);
}
