/* SPDX-License-Identifier: MIT
 *
 * stacks.c - which stacks kernel to use.
 */
#include "kernels/stacks/stacks.h"

#define KERNEL_TYPE    attn__stacks_kernel
#define KERNEL_OF(set) attn__stacks_##set
#include "simd/choice_tmpl.h"

extern const attn__stacks_kernel attn__stacks_double;

const attn__stacks_kernel *attn__stacks_for(bool is_double, attn__isa isa)
{
    return is_double ? &attn__stacks_double : choose(isa);
}
