/* SPDX-License-Identifier: MIT
 *
 * attn bench train: measures time and memory of a training step of a Transformer.
 */
#include "bench.h"
#include "step.h"

#include <string.h>

static const cli_option options[] = {
    CLI_TEXT("threads", 0, "LIST", "", "thread counts, as 1,2; default: 1 and all"),
    CLI_REAL("seconds", "3", 0, 3600, "measure each for at least this long, and for five steps"),
};

static const char *const usage[] = {"[d2l|large]...", NULL};

static const char description[] =
    "A training step of a Transformer on random sentences: forward, cross-entropy of the tokens that count, backward, "
    "clipping to norm 1, Adam. Two shapes:\n"
    "  d2l    256 wide, 2+2 blocks, 4 heads, FFN 64, 128 sentences of 10 tokens,\n"
    "         vocabularies of 194 and 212, dropout 0.2\n"
    "  large  512 wide, 6+6 blocks, 8 heads, FFN 2048, 64 sentences of 32 tokens,\n"
    "         vocabularies of 5,000 and 8,000, dropout 0.1\n"
    "The time is the median after a warm-up. Tokens are target positions, padding included. Operations are those of "
    "the matrix products and of attention (masked by structure not counted), 2 a multiply-add, times 3 for forward "
    "and backward; the peak is that of f32 multiply-adds on registers, measured in the same run. Memory is the most "
    "the library held, and the process's own high-water mark of resident memory (of one shape and thread count each, "
    "where the system can reset it). Allocations are those of one step, after the first few steps.";

static const char *const examples[] = {"attn bench train", "attn bench train large --threads 2",
                                       "attn bench train d2l --json", NULL};

static void print_row(const bench_step *s)
{
    char tokens[32];
    printf("%-6s %3d %10.2f %10.2f %12s %9.2f %8.1f %6.3f %9.1f %9.1f %7.2f\n", s->shape->name, s->threads, s->ms,
           s->fastest_ms, cli_count((int64_t)s->tokens_per_second, tokens), s->gflops, s->peak_gflops,
           s->gflops / s->peak_gflops, (double)s->context_peak / 0x1p20, (double)s->process_peak / 0x1p20,
           s->allocations);
    fflush(stdout);
}

static void put_row(attn_json *json, const bench_step *s)
{
    attn_json_object(json, NULL);
    attn_json_text(json, "shape", s->shape->name);
    attn_json_int(json, "threads", s->threads);
    attn_json_real(json, "ms", s->ms);
    attn_json_real(json, "fastest_ms", s->fastest_ms);
    attn_json_int(json, "steps", s->steps);
    attn_json_real(json, "tokens_per_s", s->tokens_per_second);
    attn_json_real(json, "gflops", s->gflops);
    attn_json_real(json, "peak_gflops", s->peak_gflops);
    attn_json_real(json, "fraction", s->gflops / s->peak_gflops);
    attn_json_int(json, "parameters", s->parameters);
    attn_json_int(json, "context_peak_bytes", (int64_t)s->context_peak);
    attn_json_int(json, "process_peak_bytes", (int64_t)s->process_peak);
    attn_json_real(json, "allocations_per_step", s->allocations);
    attn_json_real(json, "first_loss", s->first_loss);
    attn_json_real(json, "last_loss", s->last_loss);
    attn_json_end(json);
}

static int find_shapes(const cli_call *cli, const bench_shape **shapes, int *n)
{
    *n = 0;
    for (int i = 0; cli->nwords == 0 && bench_shapes[i].name; i++)
        shapes[(*n)++] = &bench_shapes[i];
    for (int w = 0; w < cli->nwords && w < BENCH_MOST_SHAPES; w++) {
        int i = 0;
        while (bench_shapes[i].name && strcmp(bench_shapes[i].name, cli->words[w]) != 0)
            i++;
        if (!bench_shapes[i].name)
            return cli_fail(CLI_BAD, "there is no shape \"%.40s\"; expected d2l or large", cli->words[w]);
        shapes[(*n)++] = &bench_shapes[i];
    }
    return CLI_OK;
}

static int measure_all(const cli_call *cli, attn_json *json)
{
    const bench_shape *shapes[BENCH_MOST_SHAPES];
    int counts[BENCH_MOST_THREADS], n, nshapes = 0;
    int code = bench_thread_counts(cli, counts, &n);
    if (code == CLI_OK)
        code = find_shapes(cli, shapes, &nshapes);
    if (code == CLI_OK && !cli->json)
        printf("%-6s %3s %10s %10s %12s %9s %8s %6s %9s %9s %7s\n", "shape", "thr", "ms", "fastest", "tokens/s",
               "GFLOP/s", "peak", "part", "MiB", "RSS MiB", "allocs");
    for (int i = 0; code == CLI_OK && i < nshapes; i++)
        for (int t = 0; code == CLI_OK && t < n; t++) {
            bench_step step = {
                .shape = shapes[i], .threads = counts[t], .precision = attn_context_precision(cli->context)};
            code = bench_step_measure(&step, cli_real(cli, "seconds"));
            if (code == CLI_OK && cli->json)
                put_row(json, &step);
            else if (code == CLI_OK)
                print_row(&step);
        }
    return code;
}

static int run(cli_call *cli)
{
    attn_json json;
    if (!cli->json)
        return measure_all(cli, NULL);
    attn_json_begin(&json, cli->context, true);
    attn_json_array(&json, NULL);
    int code = measure_all(cli, &json);
    attn_json_end(&json);
    if (code == CLI_OK)
        return cli_print_json(cli, &json);
    attn_json_free(&json);
    return code;
}

const cli_command bench_train = {
    "bench train",
    "measure a training step against the machine's peak",
    usage,
    description,
    CLI_OPTIONS(options),
    NULL,
    examples,
    0,
    BENCH_MOST_SHAPES,
    run,
};
