/* SPDX-License-Identifier: MIT
 *
 * choice_tmpl.h - lists the instruction sets of one kernel and chooses one of them. NAME.c includes it with
 *     #define KERNEL_TYPE attn__NAME_kernel
 *     #define KERNEL_OF(set) attn__NAME_##set
 * It defines kernels[], with the best first, and choose(isa).
 */
#define ATTN__KERNEL(NAME, name) extern const KERNEL_TYPE KERNEL_OF(name);
#include "simd/kernels.inc"
#undef ATTN__KERNEL

static const KERNEL_TYPE *const kernels[] = {
#define ATTN__KERNEL(NAME, name) &KERNEL_OF(name),
#include "simd/kernels.inc"
#undef ATTN__KERNEL
};

/* Returns the best kernel whose instruction set is not above `isa`. It is never NULL, because the last kernel is plain
 * C, which every machine can run. */
static const KERNEL_TYPE *choose(attn__isa isa)
{
    int i = 0;
    while (kernels[i]->isa > isa) /* NOLINT: the loop ends at the last kernel, which any machine can run */
        i++;
    return kernels[i];
}
