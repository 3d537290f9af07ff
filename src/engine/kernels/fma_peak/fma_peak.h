/* SPDX-License-Identifier: MIT
 *
 * fma_peak.h - measures how many multiply-adds the machine can do (FMA peak). The library states its speed as a
 * fraction of this peak.
 */
#ifndef ATTN_KERNELS_FMA_PEAK_H
#define ATTN_KERNELS_FMA_PEAK_H

#include "base/cpu.h"

#include <stdint.h>

typedef struct attn__fma_peak_kernel {
    attn__isa isa;
    /* Runs `rounds` rounds of independent multiply-adds on registers. Returns the number of operations, where a
     * multiply-add counts as two. Adds the results to `sink`, so that the compiler cannot remove the multiply-adds. */
    double (*run)(int64_t rounds, float *sink);
} attn__fma_peak_kernel;

const attn__fma_peak_kernel *attn__fma_peak_for(attn__isa isa);

/* Returns 10^9 operations per second: the best of `repeats` measurements of about a millisecond each. repeats = 0 means
 * 12. `threads` threads run at once. */
double attn__fma_peak_gflops(attn__isa isa, int threads, int repeats);

#endif
