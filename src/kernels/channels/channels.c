/* SPDX-License-Identifier: MIT
 *
 * channels.c - which channels kernel to use.
 */
#include "kernels/channels/channels.h"

#define KERNEL_TYPE    attn__channels_kernel
#define KERNEL_OF(set) attn__channels_##set
#include "simd/choice_tmpl.h"

const attn__channels_kernel *attn__channels_for(attn__isa isa)
{
    return choose(isa);
}
