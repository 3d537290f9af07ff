/* SPDX-License-Identifier: MIT
 *
 * window.c - chooses the kernel for an instruction set.
 */
#include "kernels/window/window.h"

#define KERNEL_TYPE    attn__window_kernel
#define KERNEL_OF(set) attn__window_kernel_##set
#include "simd/choice_tmpl.h"

const attn__window_kernel *attn__window_kernel_for(attn__isa isa)
{
    return choose(isa);
}
