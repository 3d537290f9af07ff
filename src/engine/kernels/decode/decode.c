/* SPDX-License-Identifier: MIT
 *
 * decode.c - chooses the kernel for an instruction set.
 */
#include "kernels/decode/decode.h"

#define KERNEL_TYPE    attn__decode_kernel
#define KERNEL_OF(set) attn__decode_##set
#include "simd/choice_tmpl.h"

const attn__decode_kernel *attn__decode_for(attn__isa isa)
{
    return choose(isa);
}
