/* SPDX-License-Identifier: MIT
 *
 * step.h - measures a training step of a Transformer.
 */
#ifndef BENCH_STEP_H
#define BENCH_STEP_H

#include "attn/models.h"
#include "attn/train.h"

#include <stddef.h>
#include <stdint.h>

enum { BENCH_MOST_SHAPES = 8 };

typedef struct bench_shape {
    const char *name;
    int64_t batch, tokens, hiddens, ffn, heads, blocks, source_vocab, target_vocab;
    double dropout;
} bench_shape;

extern const bench_shape bench_shapes[]; /* Ends with a model whose name is NULL. */

typedef struct bench_step {
    const bench_shape *shape;
    int threads;
    attn_precision precision;
    double ms, fastest_ms, tokens_per_second, gflops, peak_gflops;
    double allocations; /* allocations in a step after the warm-up */
    int64_t steps, parameters;
    size_t context_peak, process_peak;
    double first_loss, last_loss;
} bench_step;

/* A model with its optimizer and a batch, whose steps the caller can run one by one. */
typedef struct bench_trainer {
    const bench_shape *shape;
    attn_context *context;
    attn_model *model;
    attn_optimizer *optimizer;
    attn_tape *tape;
    attn_tensor *source, *lengths, *target, *labels;
    uint64_t random, steps;
} bench_trainer;

/* Opens a trainer, which must be zero before the call. The caller must close it, even after a failure. */
attn_status bench_trainer_open(bench_trainer *trainer, attn_context *context, const bench_shape *shape);
attn_status bench_trainer_step(bench_trainer *trainer, double *loss);
void bench_trainer_close(bench_trainer *trainer); /* Frees everything except the context. */
double bench_step_flops(const bench_shape *shape);

/* Returns an exit code. Errors have been printed. */
int bench_step_measure(bench_step *step, double seconds);

#endif
