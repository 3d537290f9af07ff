/* SPDX-License-Identifier: MIT
 *
 * fma_peak.h - measures the machine's FMA peak, the unit in which this library states its speed.
 */
#ifndef ATTN_KERNELS_FMA_PEAK_H
#define ATTN_KERNELS_FMA_PEAK_H

#include "base/cpu.h"

#include <stdint.h>

typedef struct attn__fma_peak_kernel {
    attn__isa isa;
    /* Runs `rounds` rounds of independent multiply-adds on registers. Returns the number of operations; a multiply-add
     * counts as two. Adds the results to `sink`, so that the compiler cannot remove the multiply-adds. */
    double (*run)(int64_t rounds, float *sink);
} attn__fma_peak_kernel;

/* Returns the best of `repeats` (0: 12) measurements of about a millisecond each, in 10^9 operations per second.
 * `threads` threads run at once. */
double attn__fma_peak_gflops(attn__isa isa, int threads, int repeats);

#endif
