/* SPDX-License-Identifier: MIT
 *
 * few.c - which few kernel to use.
 */
#include "kernels/few/few.h"

#define KERNEL_TYPE    attn__few_kernel
#define KERNEL_OF(set) attn__few_##set
#include "simd/choice_tmpl.h"

const attn__few_kernel *attn__few_for(attn__isa isa)
{
    return choose(isa);
}
