/* SPDX-License-Identifier: MIT
 *
 * rows.c - which table of row kernels to use.
 */
#include "kernels/rows/rows.h"

#define KERNEL_TYPE    attn__rows_table
#define KERNEL_OF(set) attn__rows_##set
#include "simd/choice_tmpl.h"

extern const attn__rows_table attn__rows_double;

const attn__rows_table *attn__rows_for(bool is_double, attn__isa isa)
{
    if (is_double)
        return &attn__rows_double;
    return choose(isa);
}
