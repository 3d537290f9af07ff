/* SPDX-License-Identifier: MIT
 *
 * vit_probe.c - Vision Transformers, timed.
 *
 *     cc -O2 -pthread -Iinclude bench/vit_probe.c build/libattn.a $(pkg-config --libs jansson cairo libpng) \
 *         -ljpeg -lz -lm -o vit_probe
 *
 * vit_probe forward BATCH   ViT-B/16 on 224 x 224, 1,000 classes
 * vit_probe infer BATCH     the same with weights packed once (attn_model_pack_weights)
 * vit_probe train BATCH     the ViT of Dive into Deep Learning (96 x 96, patch 16, 512 wide, 2 blocks): forward,
 *                           cross-entropy and backward
 *
 * Timed next to bench/peers/vit.py.  ATTN_THREADS, ATTN_PRECISION and ATTN_ISA say how. */
#define _POSIX_C_SOURCE 200809L
#include "attn/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(const attn_context *context)
{
    if (attn_context_status(context) == ATTN_OK)
        return;
    fprintf(stderr, "%s\n", attn_context_error(context));
    exit(1);
}

typedef struct shape {
    int64_t img, patch, hidden, mlp, heads, blocks, classes;
    int bias;
} shape;

static attn_model *build(attn_context *context, const shape *s)
{
    attn_config *config;
    attn_model *model;
    attn_config_create(&config, context);
    attn_config_set_int(config, "img_size", s->img);
    attn_config_set_int(config, "patch_size", s->patch);
    attn_config_set_int(config, "num_hiddens", s->hidden);
    attn_config_set_int(config, "mlp_num_hiddens", s->mlp);
    attn_config_set_int(config, "num_heads", s->heads);
    attn_config_set_int(config, "num_blks", s->blocks);
    attn_config_set_int(config, "num_classes", s->classes);
    attn_config_set_bool(config, "use_bias", s->bias);
    attn_model_create(&model, context, "vit", config, &(attn_model_options){.seed = 1});
    check(context);
    attn_config_destroy(config);
    return model;
}

/* FLOP of a forward pass: 2 for each weight and token, 4 for each channel and pair of tokens. */
static double operations(const shape *s, int64_t batch)
{
    double d = (double)s->hidden, grid = (double)(s->img / s->patch), tokens = grid * grid + 1;
    double patch = 2 * grid * grid * 3 * (double)(s->patch * s->patch) * d;
    double block = 2 * tokens * (4 * d * d + 2 * d * (double)s->mlp) + 4 * tokens * tokens * d;
    return (double)batch * (patch + (double)s->blocks * block + 2 * d * (double)s->classes);
}

static void step(attn_model *model, attn_tape *tape, attn_tensor *x, attn_tensor *labels, bool train)
{
    attn_context *context = attn_model_context(model);
    attn_named_list inputs = {.context = context}, outputs = {.context = context};
    attn_tape_reset(tape, &(attn_tape_options){.record = train, .train = train, .seed = 1});
    attn_named_add(&inputs, "x", x);
    attn_model_forward(model, tape, &inputs, &outputs);
    check(context);
    if (train)
        attn_backward(tape, attn_cross_entropy(tape, outputs.items[0].tensor, labels, NULL));
    check(context);
    attn_named_clear(&inputs);
    attn_named_clear(&outputs);
}

static void run(const shape *s, int64_t batch, bool train, bool packed)
{
    attn_context *context;
    attn_tensor *x, *labels;
    attn_tape *tape;
    if (attn_context_create(&context, &(attn_context_options){0}) != ATTN_OK)
        exit(1);
    attn_model *model = build(context, s);
    if (packed)
        attn_model_pack_weights(model);
    attn_tensor_create(&x, context, ATTN_F32, 4, (int64_t[]){batch, 3, s->img, s->img});
    attn_tensor_create(&labels, context, ATTN_I32, 1, (int64_t[]){batch});
    attn_tape_create(&tape, context);
    check(context);
    for (int64_t i = 0; i < attn_tensor_size(x); i++)
        ((float *)attn_tensor_data(x))[i] = (float)((i * 7919) % 1000) / 500 - 1;
    for (int64_t i = 0; i < batch; i++)
        ((int32_t *)attn_tensor_data(labels))[i] = (int32_t)(i % s->classes);
    for (int warm_up = 0; warm_up < 2; warm_up++)
        step(model, tape, x, labels, train);
    double best = 1e30, end = seconds() + 4;
    uint64_t allocations = 0, before = 0;
    int runs = 0;
    attn_context_memory(context, NULL, NULL, &before);
    for (; runs < 3 || seconds() < end; runs++) {
        double start = seconds();
        step(model, tape, x, labels, train);
        double took = seconds() - start;
        best = took < best ? took : best;
    }
    double rate = operations(s, batch) * (train ? 3 : 1) / best * 1e-9;
    double peak = attn_machine_peak(context, ATTN_F32, attn_context_threads(context));
    size_t most;
    attn_context_memory(context, NULL, &most, &allocations);
    const char *what = train ? "training step" : packed ? "forward, packed weights" : "forward";
    printf(
        "attn %s, batch %lld: fastest %.1f ms, %.2f of the peak of %.0f GFLOP/s, %.0f MiB, %.1f allocations a step\n",
        what, (long long)batch, 1e3 * best, rate / peak, peak, (double)most / 0x1p20,
        (double)(allocations - before) / runs);
    attn_tape_destroy(tape);
    attn_tensor_destroy(labels);
    attn_tensor_destroy(x);
    attn_model_destroy(model);
    attn_context_destroy(context);
}

int main(int argc, char **argv)
{
    static const shape base = {224, 16, 768, 3072, 12, 12, 1000, 1}, book = {96, 16, 512, 2048, 8, 2, 10, 0};
    const char *what = argc == 3 ? argv[1] : "";
    bool train = strcmp(what, "train") == 0, packed = strcmp(what, "infer") == 0;
    if ((!train && !packed && strcmp(what, "forward") != 0) || atoll(argv[2]) < 1) {
        fputs("vit_probe forward|infer|train BATCH\n", stderr);
        return 2;
    }
    run(train ? &book : &base, atoll(argv[2]), train, packed);
    return 0;
}
