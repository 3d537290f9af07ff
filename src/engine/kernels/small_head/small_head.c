/* SPDX-License-Identifier: MIT
 *
 * small_head.c - chooses the kernel for an instruction set.
 */
#include "kernels/small_head/small_head.h"

#define KERNEL_TYPE    attn__small_head_kernel
#define KERNEL_OF(set) attn__small_head_##set
#include "simd/choice_tmpl.h"

const attn__small_head_kernel *attn__small_head_for(attn__isa isa)
{
    return choose(isa);
}
