/* SPDX-License-Identifier: MIT
 *
 * bench_step.h - a training step of a Transformer, measured.
 */
#ifndef CLI_BENCH_STEP_H
#define CLI_BENCH_STEP_H

#include "attn/attn.h"

#include <stddef.h>
#include <stdint.h>

enum { BENCH_MOST_SHAPES = 8 };

typedef struct bench_shape {
    const char *name;
    int64_t batch, tokens, hiddens, ffn, heads, blocks, source_vocab, target_vocab;
    double dropout;
} bench_shape;

extern const bench_shape bench_shapes[]; /* ends with a NULL name */

typedef struct bench_step {
    const bench_shape *shape; /* given */
    int threads;
    attn_precision precision;
    double ms, fastest_ms, tokens_per_second, gflops, peak_gflops;
    double allocations; /* of a step, after the warm-up */
    int64_t steps, parameters;
    size_t context_peak, process_peak;
    double first_loss, last_loss;
} bench_step;

/* Fills `step`; an exit code, what was wrong having been said. */
int bench_step_measure(bench_step *step, double seconds);

#endif
