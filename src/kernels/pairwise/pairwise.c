/* SPDX-License-Identifier: MIT
 *
 * pairwise.c - which pairwise kernel to use.
 */
#include "kernels/pairwise/pairwise.h"

#define KERNEL_TYPE    attn__pairwise_kernel
#define KERNEL_OF(set) attn__pairwise_##set
#include "simd/choice_tmpl.h"

const attn__pairwise_kernel *attn__pairwise_for(attn__isa isa)
{
    return choose(isa);
}
