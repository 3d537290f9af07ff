/* SPDX-License-Identifier: MIT
 *
 * attend_probe.c - measures the forward rate of the engine and the peak rate of the machine alternately, in one
 * process.
 *
 *     cc -O2 -pthread -ffp-contract=off -Iinclude -Isrc/engine bench/attend_probe.c src/engine/base/<all>.c
 * src/engine/kernels/<all>/<all>.c src/engine/attend/<all>.c -lm -o attend_probe
 *     ./attend_probe THREADS BATCH HEADS TOKENS DIM [causal] [bf16]
 */
#include "attn/attn.h"
#include "base/context.h"
#include "kernels/fma_peak/fma_peak.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TURNS = 4 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Allocates an array and fills it with small numbers of either sign. If its bytes are read as bf16 pairs, these
 * numbers are small, too. */
static float *fill(attn_context *context, size_t count)
{
    float *x = attn__alloc(context, count * sizeof *x);
    uint32_t state = 1;
    for (size_t i = 0; x && i < count; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
    }
    return x;
}

/* Runs the plan a few times in a row. Returns the shortest time in seconds. */
static double best_run(const attn_plan *plan, const attn_arrays *arrays)
{
    double best = 1e9, until = seconds() + 0.3;
    while (seconds() < until) {
        double start = seconds();
        if (attn_plan_execute(plan, arrays, NULL) != ATTN_OK)
            return 0;
        double took = seconds() - start;
        best = took < best ? took : best;
    }
    return best;
}

static int measure(attn_context *context, const attn_problem *problem, size_t count)
{
    attn_plan *plan;
    if (attn_plan_create(&plan, context, problem, NULL) != ATTN_OK) {
        fprintf(stderr, "%s\n", attn_context_error(context));
        return 1;
    }
    attn_arrays a = {.q = fill(context, count), .k = fill(context, count), .v = fill(context, count)};
    a.o = fill(context, count);
    double best = 1e9, peak = 0;
    for (int i = 0; i < TURNS && a.q && a.k && a.v && a.o; i++) {
        double rate = attn__fma_peak_gflops(context->isa, context->threads, 2), took = best_run(plan, &a);
        peak = rate > peak ? rate : peak;
        best = took < best ? took : best;
    }
    char text[256];
    attn_plan_describe(plan, false, text, sizeof text);
    double rate = attn_plan_flops(plan) / best * 1e-9;
    printf("%.3f ms, %.1f of %.1f GFLOPS (f32): %.3f; workspace %zu\n%s\n", best * 1e3, rate, peak, rate / peak,
           attn_plan_workspace(plan), text);
    attn_plan_destroy(plan);
    const void *const arrays[] = {a.q, a.k, a.v, a.o};
    for (int i = 0; i < 4; i++)
        attn__free(context, (void *)(uintptr_t)arrays[i]);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr, "usage: attend_probe THREADS BATCH HEADS TOKENS DIM [causal] [bf16]\n");
        return 2;
    }
    attn_heads heads = {.batch = atol(argv[2]),
                        .heads = atol(argv[3]),
                        .queries = atol(argv[4]),
                        .keys = atol(argv[4]),
                        .dim = atol(argv[5])};
    attn_dtype dtype = ATTN_F32;
    for (int i = 6; i < argc; i++) {
        heads.causal = strcmp(argv[i], "causal") == 0 ? ATTN_CAUSAL_TOP_LEFT : heads.causal;
        dtype = strcmp(argv[i], "bf16") == 0 ? ATTN_BF16 : dtype;
    }
    attn_context *context;
    attn_problem problem;
    attn_context_options options = {.threads = atoi(argv[1])};
    if (attn_context_create(&context, &options) != ATTN_OK)
        return 1;
    if (attn_problem_heads(&problem, &heads) != ATTN_OK)
        return 1;
    problem.dtype = dtype;
    int code = measure(context, &problem, (size_t)(heads.batch * heads.heads * heads.queries * heads.dim));
    attn_context_destroy(context);
    return code;
}
