/* SPDX-License-Identifier: MIT
 *
 * narrow.c - which narrow kernel to use.
 */
#include "kernels/narrow/narrow.h"

#define KERNEL_TYPE    attn__narrow_kernel
#define KERNEL_OF(set) attn__narrow_##set
#include "simd/choice_tmpl.h"

const attn__narrow_kernel *attn__narrow_for(attn__isa isa)
{
    return choose(isa);
}
