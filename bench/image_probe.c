/* SPDX-License-Identifier: MIT
 *
 * image_probe.c - measures axial models of images.
 *
 *     cc -O2 -pthread -Iinclude bench/image_probe.c build/libattn.a $(pkg-config --libs jansson cairo) -lz -lm
 *
 * image_probe train SIDE DIM BATCH DEPTH...  the axial image transformer's reversible training step: time and memory
 * image_probe draw DIM SIDE...               one image from the axial transformer, fast and (to 16 x 16) slowly
 *
 * bench/peers/axial.py measures the same in PyTorch. ATTN_THREADS sets the number of threads. By default, all cores are
 * used. */
#define _POSIX_C_SOURCE 200809L
#include "models/axial_transformer.h"

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

static attn_context *begin(void)
{
    attn_context *context;
    const char *threads = getenv("ATTN_THREADS");
    attn_context_options options = {.threads = threads ? atoi(threads) : 0};
    if (attn_context_create(&context, &options) != ATTN_OK)
        exit(1);
    return context;
}

static void check(const attn_context *context)
{
    if (attn_context_status(context) == ATTN_OK)
        return;
    fprintf(stderr, "%s\n", attn_context_error(context));
    exit(1);
}

typedef struct setting {
    const char *key;
    int64_t value;
} setting;

static attn_model *build(attn_context *context, const char *architecture, int n, const setting *settings)
{
    attn_config *config;
    attn_model *model;
    attn_config_create(&config, context);
    for (int i = 0; i < n; i++)
        attn_config_set_int(config, settings[i].key, settings[i].value);
    attn_model_create(&model, context, architecture, config, &(attn_model_options){.seed = 1});
    check(context);
    attn_config_destroy(config);
    return model;
}

static void train(int64_t side, int64_t dim, int64_t batch, int64_t depth)
{
    attn_context *context = begin();
    attn_model *model = build(context, "axial-image-transformer", 2, (setting[]){{"dim", dim}, {"depth", depth}});
    attn_tensor *x;
    attn_tape *tape;
    size_t own, peak;
    attn_context_memory(context, &own, NULL, NULL);
    attn_tensor_create(&x, context, ATTN_F32, 4, (int64_t[]){batch, dim, side, side});
    attn_tape_create(&tape, context);
    for (int64_t i = 0; i < attn_tensor_size(x); i++)
        ((float *)attn_tensor_data(x))[i] = (float)((i * 7919) % 1000) / 500 - 1;
    double best = 1e30, sum = 0;
    for (int step = 0; step < 4; step++) {
        double start = seconds();
        attn_named_list inputs = {.context = context}, outputs = {.context = context};
        attn_tape_reset(tape, &(attn_tape_options){.record = true, .train = true, .seed = 1});
        attn_named_add(&inputs, "x", x);
        attn_model_forward(model, tape, &inputs, &outputs);
        attn_tensor *y = attn_named_find(&outputs, "out");
        y = attn_mul(tape, y, y);
        attn_backward(tape, attn_mean(tape, attn_reshape(tape, y, 1, (int64_t[]){-1}), 0));
        check(context);
        attn_named_clear(&inputs);
        attn_named_clear(&outputs);
        double took = seconds() - start;
        best = took < best ? took : best;
        sum += step > 0 ? took : 0;
    }
    attn_context_memory(context, NULL, &peak, NULL);
    printf("depth %3lld  %lld x %lld x %lld x %lld  %8.1f ms (fastest %.1f)  %7.1f MiB, %.1f beside parameters and "
           "gradients\n",
           (long long)depth, (long long)batch, (long long)dim, (long long)side, (long long)side, 1e3 * sum / 3,
           1e3 * best, (double)peak / 0x1p20, ((double)peak - 2 * (double)own) / 0x1p20);
    attn_tape_destroy(tape);
    attn_tensor_destroy(x);
    attn_model_destroy(model);
    attn_context_destroy(context);
}

static double draw(attn_model *model, attn_tensor *x, bool slow)
{
    double start = seconds();
    attn_axial_transformer_sample(model, x, &(attn_axial_transformer_options){.seed = 1, .slow = slow});
    check(attn_model_context(model));
    return seconds() - start;
}

static void draw_side(int64_t dim, int64_t side)
{
    attn_context *context = begin();
    attn_model *model = build(context, "axial-transformer", 9,
                              (setting[]){{"height", side},
                                          {"width", side},
                                          {"channels", 1},
                                          {"levels", 256},
                                          {"dim", dim},
                                          {"heads", 4},
                                          {"exterior_blocks", 4},
                                          {"outer_blocks", 4},
                                          {"inner_blocks", 4}});
    attn_tensor *x;
    attn_tensor_create(&x, context, ATTN_I32, 4, (int64_t[]){1, 1, side, side});
    draw(model, x, false);
    double fast = draw(model, x, false);
    printf("%3lld x %-3lld  fast %8.1f ms", (long long)side, (long long)side, 1e3 * fast);
    if (side <= 16) {
        double slow = draw(model, x, true);
        printf("   slow %8.1f ms, %.0f times as long", 1e3 * slow, slow / fast);
    }
    puts("");
    attn_tensor_destroy(x);
    attn_model_destroy(model);
    attn_context_destroy(context);
}

int main(int argc, char **argv)
{
    if (argc > 5 && strcmp(argv[1], "train") == 0) {
        for (int i = 5; i < argc; i++)
            train(atoll(argv[2]), atoll(argv[3]), atoll(argv[4]), atoll(argv[i]));
        return 0;
    }
    if (argc > 3 && strcmp(argv[1], "draw") == 0) {
        for (int i = 3; i < argc; i++)
            draw_side(atoll(argv[2]), atoll(argv[i]));
        return 0;
    }
    fputs("usage: image_probe train SIDE DIM BATCH DEPTH... | image_probe draw DIM SIDE...\n", stderr);
    return 1;
}
