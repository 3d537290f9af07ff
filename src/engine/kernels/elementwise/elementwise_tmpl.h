/* SPDX-License-Identifier: MIT
 *
 * elementwise_tmpl.h - the elementwise kernels for one instruction set; see elementwise.h.
 */
#include "kernels/elementwise/elementwise_math.h"

#include "kernels/elementwise/elementwise_elements.h"
#include "kernels/elementwise/elementwise_strided.h"

#include "kernels/elementwise/elementwise_gru.h"
#include "kernels/elementwise/elementwise_lookup.h"
#include "kernels/elementwise/elementwise_normalize.h"

#include "kernels/elementwise/elementwise_loss.h"

extern const attn__elementwise_table VF_NAME(attn__elementwise);
const attn__elementwise_table VF_NAME(attn__elementwise) = {
    .isa = VF_ISA,
    .run =
        {
#define ATTN_X(NAME, name) [ATTN__ELEMENTWISE_##NAME] = run_##name,
            ATTN__ELEMENTWISE_MAP(ATTN_X)
#undef ATTN_X
        },
};
