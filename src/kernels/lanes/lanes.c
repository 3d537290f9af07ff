/* SPDX-License-Identifier: MIT
 *
 * lanes.c - which lanes kernel to use.
 */
#include "kernels/lanes/lanes.h"

#define KERNEL_TYPE    attn__lanes_kernel
#define KERNEL_OF(set) attn__lanes_##set
#include "simd/choice_tmpl.h"

const attn__lanes_kernel *attn__lanes_for(attn__isa isa)
{
    return choose(isa);
}
