/* SPDX-License-Identifier: MIT
 *
 * tile.c - which tile kernel to use.
 */
#include "kernels/tile/tile.h"

#define KERNEL_TYPE    attn__tile_kernel
#define KERNEL_OF(set) attn__tile_##set
#include "simd/choice_tmpl.h"

const attn__tile_kernel *attn__tile_for(attn__isa isa)
{
    return choose(isa);
}
