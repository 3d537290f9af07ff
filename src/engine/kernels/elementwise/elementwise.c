/* SPDX-License-Identifier: MIT
 *
 * elementwise.c - chooses the table of kernels for an instruction set.
 */
#include "kernels/elementwise/elementwise.h"

#define KERNEL_TYPE    attn__elementwise_table
#define KERNEL_OF(set) attn__elementwise_##set
#include "simd/choice_tmpl.h"

extern const attn__elementwise_table attn__elementwise_double;

const attn__elementwise_table *attn__elementwise_for(bool is_double, attn__isa isa)
{
    if (is_double)
        return &attn__elementwise_double;
    return choose(isa);
}
