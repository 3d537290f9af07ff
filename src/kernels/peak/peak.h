/* SPDX-License-Identifier: MIT
 *
 * peak.h - the machine's rate of multiply-adds, measured: the unit in which this library states its speed.
 */
#ifndef ATTN_KERNELS_PEAK_H
#define ATTN_KERNELS_PEAK_H

#include "base/cpu.h"

#include <stdint.h>

typedef struct attn__peak_kernel {
    attn__isa isa;
    /* Does `rounds` rounds of independent multiply-adds on registers; returns their number of operations,
     * two each.  The numbers go to `sink`, so that nothing can be left out. */
    double (*run)(int64_t rounds, float *sink);
} attn__peak_kernel;

/* The best of `repeats` (0: 12) measurements of a millisecond or so, in 10^9 operations a second, all
 * `threads` at work at once. */
double attn__peak_gflops(attn__isa isa, int threads, int repeats);

#endif
