/* SPDX-License-Identifier: MIT
 *
 * vit_probe.c - measures the speed of Vision Transformers.
 *
 *     cc -O2 -pthread -Iinclude -Ibench/attn-bench bench/vit_probe.c bench/attn-bench/vit.c build/libattn.a \
 *         $(pkg-config --libs jansson cairo libpng) -ljpeg -lz -lm -o vit_probe
 *
 * vit_probe forward BATCH [SECONDS]   ViT-B/16 on 224 x 224, 1,000 classes
 * vit_probe infer BATCH [SECONDS]     ViT-B/16 with weights packed once (attn_model_pack_weights)
 * vit_probe train BATCH [SECONDS]     the ViT of Dive into Deep Learning (96 x 96, patch 16, 512 wide, 2 blocks):
 *                                     forward, cross-entropy and backward
 *
 * bench/peers/vit.py measures the same in PyTorch.  ATTN_THREADS, ATTN_PRECISION and ATTN_ISA apply. */
#define _POSIX_C_SOURCE 200809L
#include "vit.h"

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

static void check(const attn_context *context, attn_status status)
{
    if (status == ATTN_OK)
        return;
    fprintf(stderr, "%s\n", attn_context_error(context));
    exit(1);
}

static void run(const bench_vit_shape *shape, const char *what, double budget)
{
    attn_context *context;
    bench_vit vit = {0};
    if (attn_context_create(&context, NULL) != ATTN_OK)
        exit(1);
    check(context, bench_vit_open(&vit, context, shape));
    for (int warm_up = 0; warm_up < 2; warm_up++)
        check(context, bench_vit_run(&vit));
    double best = 1e30, end = seconds() + budget;
    uint64_t allocations = 0, before = 0;
    int runs = 0;
    attn_context_memory(context, NULL, NULL, &before);
    for (; runs < 3 || seconds() < end; runs++) {
        double start = seconds();
        check(context, bench_vit_run(&vit));
        double took = seconds() - start;
        best = took < best ? took : best;
    }
    double rate = bench_vit_flops(shape) / best * 1e-9;
    double peak = attn_machine_peak(context, ATTN_F32, attn_context_threads(context));
    size_t most;
    attn_context_memory(context, NULL, &most, &allocations);
    printf(
        "attn %s, batch %lld: fastest %.1f ms, %.2f of the peak of %.0f GFLOP/s, %.0f MiB, %.1f allocations a step\n",
        what, (long long)shape->batch, 1e3 * best, rate / peak, peak, (double)most / 0x1p20,
        (double)(allocations - before) / runs);
    bench_vit_close(&vit);
    attn_context_destroy(context);
}

int main(int argc, char **argv)
{
    static const char *const words[] = {"forward", "infer", "train"};
    static const char *const names[] = {"forward", "forward, packed weights", "training step"};
    for (int pass = BENCH_VIT_FORWARD; (argc == 3 || argc == 4) && atoll(argv[2]) > 0 && pass <= BENCH_VIT_TRAIN;
         pass++) {
        bench_vit_shape shape = pass == BENCH_VIT_TRAIN ? bench_vit_d2l : bench_vit_base;
        shape.batch = atoll(argv[2]);
        shape.pass = (bench_vit_pass)pass;
        if (strcmp(argv[1], words[pass]) != 0)
            continue;
        run(&shape, names[pass], argc == 4 ? atof(argv[3]) : 4);
        return 0;
    }
    fputs("vit_probe forward|infer|train BATCH [SECONDS]\n", stderr);
    return 2;
}
