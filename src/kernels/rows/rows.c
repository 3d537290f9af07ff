/* SPDX-License-Identifier: MIT
 *
 * rows.c - which table of row kernels to use.
 */
#include "kernels/rows/rows.h"

#define ATTN__KERNEL(NAME, name) extern const attn__rows_table attn__rows_##name;
#include "kernels/kernels.inc"
#undef ATTN__KERNEL
extern const attn__rows_table attn__rows_double;

static const attn__rows_table *const tables[] = {
#define ATTN__KERNEL(NAME, name) &attn__rows_##name,
#include "kernels/kernels.inc"
#undef ATTN__KERNEL
};

const attn__rows_table *attn__rows_for(bool is_double, attn__isa isa)
{
    if (is_double)
        return &attn__rows_double;
    int i = 0;
    while (tables[i]->isa > isa)
        i++;
    return tables[i];
}
