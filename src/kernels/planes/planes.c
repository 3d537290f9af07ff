/* SPDX-License-Identifier: MIT
 *
 * planes.c - which planes kernel to use.
 */
#include "kernels/planes/planes.h"

#define KERNEL_TYPE    attn__planes_kernel
#define KERNEL_OF(set) attn__planes_##set
#include "simd/choice_tmpl.h"

const attn__planes_kernel *attn__planes_for(attn__isa isa)
{
    return choose(isa);
}
