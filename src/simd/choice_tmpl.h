/* SPDX-License-Identifier: MIT
 *
 * choice_tmpl.h - the table of one kernel's instruction sets and the choice from it; included by NAME.c with
 *     #define KERNEL_TYPE attn__NAME_kernel
 *     #define KERNEL_OF(set) attn__NAME_##set
 * Defines kernels[], best first, and choose(isa).
 */
#define ATTN__KERNEL(NAME, name) extern const KERNEL_TYPE KERNEL_OF(name);
#include "simd/kernels.inc"
#undef ATTN__KERNEL

static const KERNEL_TYPE *const kernels[] = {
#define ATTN__KERNEL(NAME, name) &KERNEL_OF(name),
#include "simd/kernels.inc"
#undef ATTN__KERNEL
};

/* The best set that is not above `isa`.  Plain C is last in the list and runs anywhere, so that there is one. */
static const KERNEL_TYPE *choose(attn__isa isa)
{
    int i = 0;
    while (kernels[i]->isa > isa) /* NOLINT: the list ends with one that any machine runs */
        i++;
    return kernels[i];
}
