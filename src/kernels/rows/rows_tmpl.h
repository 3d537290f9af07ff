/* SPDX-License-Identifier: MIT
 *
 * rows_tmpl.h - the row kernels for one instruction set; see rows.h.  Included by rows_avx512.c and its kin.
 */
#include "kernels/rows/rows_math.h"

#include "kernels/rows/rows_elements.h"
#include "kernels/rows/rows_strided.h"

#include "kernels/rows/rows_gru.h"
#include "kernels/rows/rows_lookup.h"
#include "kernels/rows/rows_normalise.h"

#include "kernels/rows/rows_loss.h"

extern const attn__rows_table VF_NAME(attn__rows);
const attn__rows_table VF_NAME(attn__rows) = {
    .isa = VF_ISA,
    .run =
        {
#define ATTN_X(NAME, name) [ATTN__ROWS_##NAME] = run_##name,
            ATTN__ROWS_MAP(ATTN_X)
#undef ATTN_X
        },
};
