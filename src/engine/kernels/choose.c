/* SPDX-License-Identifier: MIT
 *
 * choose.c - chooses a kernel for an instruction set: the best one whose set is not above it. The last one is plain C,
 * which every machine can run.
 */
#include "kernels/additive/additive.h"
#include "kernels/batch_norm/batch_norm.h"
#include "kernels/channel_norm/channel_norm.h"
#include "kernels/decode/decode.h"
#include "kernels/depthwise/depthwise.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/fma_peak/fma_peak.h"
#include "kernels/gemm_tile/gemm_tile.h"
#include "kernels/online_softmax/online_softmax.h"
#include "kernels/rows_f64/rows_f64.h"
#include "kernels/small_head/small_head.h"
#include "kernels/small_sequence/small_sequence.h"
#include "kernels/softmax_backward/softmax_backward.h"
#include "kernels/window/window.h"
#include "simd/sets.h"

#define DECLARE(NAME, set, type, prefix) extern const type prefix##set;
#define ENTRY(NAME, set, prefix)         &prefix##set,
/* Defines function(isa), which chooses among the objects prefix##set. A declaration ends it. */
#define CHOICE(function, type, prefix)                                                                                 \
    const type *function(attn__isa isa)                                                                                \
    {                                                                                                                  \
        ATTN__SETS(DECLARE, type, prefix)                                                                              \
        static const type *const kernels[] = {ATTN__SETS(ENTRY, prefix)};                                              \
        int i = 0;                                                                                                     \
        while (kernels[i]->isa > isa) /* NOLINT: the last kernel ends the loop */                                      \
            i++;                                                                                                       \
        return kernels[i];                                                                                             \
    }                                                                                                                  \
    const type *function(attn__isa isa)

/* The kernels that also exist in double precision. */
static CHOICE(batch_norm_for, attn__batch_norm_kernel, attn__batch_norm_);
static CHOICE(elementwise_for, attn__elementwise_table, attn__elementwise_);

CHOICE(attn__additive_for, attn__additive_kernel, attn__additive_);
CHOICE(attn__channel_norm_for, attn__channel_norm_kernel, attn__channel_norm_);
CHOICE(attn__decode_for, attn__decode_kernel, attn__decode_);
CHOICE(attn__depthwise_for, attn__depthwise_kernel, attn__depthwise_);
CHOICE(attn__fma_peak_for, attn__fma_peak_kernel, attn__fma_peak_);
CHOICE(attn__gemm_tile_for, attn__gemm_tile_kernel, attn__gemm_tile_);
CHOICE(attn__online_softmax_for, attn__online_softmax_kernel, attn__online_softmax_);
CHOICE(attn__rows_f64_for, attn__rows_f64_kernel, attn__rows_f64_);
CHOICE(attn__small_head_for, attn__small_head_kernel, attn__small_head_);
CHOICE(attn__small_sequence_for, attn__small_sequence_kernel, attn__small_sequence_);
CHOICE(attn__softmax_backward_for, attn__softmax_backward_kernel, attn__softmax_backward_);
CHOICE(attn__window_kernel_for, attn__window_kernel, attn__window_kernel_);

const attn__batch_norm_kernel *attn__batch_norm_for(bool is_double, attn__isa isa)
{
    extern const attn__batch_norm_kernel attn__batch_norm_double;
    return is_double ? &attn__batch_norm_double : batch_norm_for(isa);
}

const attn__elementwise_table *attn__elementwise_for(bool is_double, attn__isa isa)
{
    extern const attn__elementwise_table attn__elementwise_double;
    return is_double ? &attn__elementwise_double : elementwise_for(isa);
}
