/* SPDX-License-Identifier: MIT
 *
 * short.c - which short kernel to use.
 */
#include "kernels/short/short.h"

#define KERNEL_TYPE    attn__short_kernel
#define KERNEL_OF(set) attn__short_##set
#include "simd/choice_tmpl.h"

const attn__short_kernel *attn__short_for(attn__isa isa)
{
    return choose(isa);
}
