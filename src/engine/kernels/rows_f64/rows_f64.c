/* SPDX-License-Identifier: MIT
 *
 * rows_f64.c - chooses the kernel for an instruction set.
 */
#include "kernels/rows_f64/rows_f64.h"

#define KERNEL_TYPE    attn__rows_f64_kernel
#define KERNEL_OF(set) attn__rows_f64_##set
#include "simd/choice_tmpl.h"

const attn__rows_f64_kernel *attn__rows_f64_for(attn__isa isa)
{
    return choose(isa);
}
