/* SPDX-License-Identifier: MIT
 *
 * backward.c - chooses the kernel for an instruction set.
 */
#include "kernels/backward/backward.h"

#define KERNEL_TYPE    attn__backward_kernel
#define KERNEL_OF(set) attn__backward_##set
#include "simd/choice_tmpl.h"

const attn__backward_kernel *attn__backward_for(attn__isa isa)
{
    return choose(isa);
}
