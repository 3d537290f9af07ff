/* SPDX-License-Identifier: MIT
 *
 * choice_tmpl.h - lists one kernel's instruction sets and chooses one. NAME.c includes it with
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

/* Returns the best kernel whose instruction set is not above `isa`. The last kernel is plain C, which runs on any
 * machine, so the result is never NULL. */
static const KERNEL_TYPE *choose(attn__isa isa)
{
    int i = 0;
    while (kernels[i]->isa > isa) /* NOLINT: the list ends with one that any machine runs */
        i++;
    return kernels[i];
}
