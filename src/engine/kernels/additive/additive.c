/* SPDX-License-Identifier: MIT
 *
 * additive.c - chooses the kernel for an instruction set.
 */
#include "kernels/additive/additive.h"

#define KERNEL_TYPE    attn__additive_kernel
#define KERNEL_OF(set) attn__additive_##set
#include "simd/choice_tmpl.h"

const attn__additive_kernel *attn__additive_for(attn__isa isa)
{
    return choose(isa);
}
