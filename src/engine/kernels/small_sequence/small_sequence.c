/* SPDX-License-Identifier: MIT
 *
 * small_sequence.c - chooses the kernel for an instruction set.
 */
#include "kernels/small_sequence/small_sequence.h"

#define KERNEL_TYPE    attn__small_sequence_kernel
#define KERNEL_OF(set) attn__small_sequence_##set
#include "simd/choice_tmpl.h"

const attn__small_sequence_kernel *attn__small_sequence_for(attn__isa isa)
{
    return choose(isa);
}
