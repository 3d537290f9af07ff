/* SPDX-License-Identifier: MIT
 *
 * softmax_backward.c - chooses the kernel for an instruction set.
 */
#include "kernels/softmax_backward/softmax_backward.h"

#define KERNEL_TYPE    attn__softmax_backward_kernel
#define KERNEL_OF(set) attn__softmax_backward_##set
#include "simd/choice_tmpl.h"

const attn__softmax_backward_kernel *attn__softmax_backward_for(attn__isa isa)
{
    return choose(isa);
}
