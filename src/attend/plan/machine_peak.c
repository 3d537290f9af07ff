/* SPDX-License-Identifier: MIT
 * The machine's peak, as the public header offers it. */
#include "base/context.h"
#include "base/parallel.h"
#include "kernels/fma_peak/fma_peak.h"

double attn_machine_peak(attn_context *context, attn_dtype dtype, int threads)
{
    if (dtype != ATTN_F32 && dtype != ATTN_BF16) {
        attn__fail(context, ATTN_ERROR_ARGUMENT, "the peak is measured for f32 and bf16, not for %s",
                   attn_dtype_name(dtype));
        return 0;
    }
    if (threads < 0 || threads > ATTN__MAX_THREADS) {
        attn__fail(context, ATTN_ERROR_ARGUMENT, "%d threads: it must be 0 to %d", threads, ATTN__MAX_THREADS);
        return 0;
    }
    return attn__fma_peak_gflops(context->isa, threads ? threads : context->threads, 0);
}
