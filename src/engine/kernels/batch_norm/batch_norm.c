/* SPDX-License-Identifier: MIT
 *
 * batch_norm.c - chooses the kernel for an instruction set.
 */
#include "kernels/batch_norm/batch_norm.h"

#define KERNEL_TYPE    attn__batch_norm_kernel
#define KERNEL_OF(set) attn__batch_norm_##set
#include "simd/choice_tmpl.h"

extern const attn__batch_norm_kernel attn__batch_norm_double;

const attn__batch_norm_kernel *attn__batch_norm_for(bool is_double, attn__isa isa)
{
    return is_double ? &attn__batch_norm_double : choose(isa);
}
