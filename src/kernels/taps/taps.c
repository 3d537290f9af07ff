/* SPDX-License-Identifier: MIT
 *
 * taps.c - which taps kernel to use.
 */
#include "kernels/taps/taps.h"

#define KERNEL_TYPE    attn__taps_kernel
#define KERNEL_OF(set) attn__taps_##set
#include "simd/choice_tmpl.h"

const attn__taps_kernel *attn__taps_for(attn__isa isa)
{
    return choose(isa);
}
