/* SPDX-License-Identifier: MIT
 * The gradient of a convolution's weights in the matrix unit: dw[o][i][tap] = sum over places of dy[o][place]
 * x[i][place + tap].
 *
 * With a border of zeros an image is one line of numbers per channel, in which a tap is a distance; dy has zeros where
 * x has its borders to the right, so that the sum runs along whole lines.  x's lines serve as A, begun at any number,
 * and dy's, transposed once, as B. */
#include "base/integers.h"
#include "base/parallel.h"
#include "tensor/conv_parts.h"
#include "tensor/op.h"

#include <stdatomic.h>
#include <string.h>

enum { PARTS = ATTN__PARTS_F32, SIDE = ATTN__PARTS_SIDE, DEPTH = ATTN__PARTS_DEPTH, TILE = ATTN__PARTS_TILE };

/* What the threads share. */
typedef struct work {
    const attn__parts_kernel *kernel;
    const attn__conv_args *args;
    int64_t pitch, line;   /* numbers in a bordered row, in a channel of x */
    int64_t steps;         /* of 32 places in an image of dy */
    int64_t taps, in, out; /* blocks of 16 channels */
    int64_t image;
    uint16_t *x, *y; /* [in][channel][part][line]; tiles [out][step][part] */
    float *lines;    /* 16 for each thread, before they are split */
    float *sums;     /* [tap][channel of x][channel of y] */
    atomic_bool finite;
} work;

/* Some channels of an image as lines: rows of `width` every `pitch` numbers, the first one at `first`. */
static void lay_out(const work *k, float *lines, const float *from, int64_t channels, int64_t height, int64_t width,
                    int64_t first)
{
    for (int64_t i = 0; i < channels; i++) {
        float *line = lines + i * k->line;
        memset(line, 0, (size_t)k->line * sizeof *line);
        for (int64_t y = 0; y < height; y++)
            memcpy(line + first + y * k->pitch, from + (i * height + y) * width, (size_t)width * sizeof *line);
    }
}

static int64_t channels_of(int64_t block, int64_t channels)
{
    return channels - block * SIDE < SIDE ? channels - block * SIDE : SIDE;
}

static void split_x(work *k, int64_t block, float *lines)
{
    const attn__conv_args *a = k->args;
    const attn__window_grid *g = &a->grid;
    int64_t channels = channels_of(block, a->in);
    lay_out(k, lines, a->x + (k->image * a->in + block * SIDE) * g->in[1] * g->in[2], channels, g->in[1], g->in[2],
            g->padding[1] * k->pitch + g->padding[2]);
    attn__parts_rows from = {.data = lines,
                             .dtype = ATTN_F32,
                             .ld = k->line,
                             .rows = channels,
                             .columns = k->line,
                             .factor = 1,
                             .parts = PARTS};
    attn__parts_side to = {k->x + block * SIDE * PARTS * k->line, 0, DEPTH, k->line, PARTS * k->line};
    if (!k->kernel->split_rows(&from, &to))
        atomic_store(&k->finite, false);
}

static void split_y(work *k, int64_t block, float *lines)
{
    const attn__conv_args *a = k->args;
    const attn__window_grid *g = &a->grid;
    int64_t channels = channels_of(block, a->out);
    lay_out(k, lines, a->y + (k->image * a->out + block * SIDE) * g->out[1] * g->out[2], channels, g->out[1], g->out[2],
            0);
    attn__parts_rows from = {.data = lines,
                             .dtype = ATTN_F32,
                             .ld = k->line,
                             .rows = channels,
                             .columns = k->steps * DEPTH,
                             .factor = 1,
                             .parts = PARTS};
    attn__parts_side to = {k->y + block * k->steps * PARTS * TILE, 0, (int64_t)PARTS * TILE, TILE, DEPTH};
    if (!k->kernel->split_rows(&from, &to))
        atomic_store(&k->finite, false);
    k->kernel->turn(to.data, k->steps * PARTS);
}

static void split_block(void *user, int64_t block, int thread)
{
    work *k = user;
    float *lines = k->lines + thread * SIDE * k->line;
    if (block < k->in)
        split_x(k, block, lines);
    else
        split_y(k, block - k->in, lines);
}

/* Some taps of two blocks of x's channels and two of y's.  Steps are taken some at a time, so that all the taps find
 * them in the cache. */
static void sum_square(const work *k, int64_t i, int64_t o, int64_t tap_begin, int64_t tap_end)
{
    enum { AT_ONCE = 12 };
    int64_t ld = k->out * SIDE, width = k->args->grid.kernel[2];
    attn__parts_args args = {.m = i + 1 < k->in ? 2 : 1,
                             .n = o + 1 < k->out ? 2 : 1,
                             .parts = PARTS,
                             .ldc = ld,
                             .a = {NULL, SIDE * PARTS * k->line, DEPTH, k->line, PARTS * k->line},
                             .b = {NULL, k->steps * PARTS * TILE, (int64_t)PARTS * TILE, TILE, DEPTH}};
    for (int64_t step = 0; step < k->steps; step += AT_ONCE) {
        args.k = k->steps - step < AT_ONCE ? k->steps - step : AT_ONCE;
        args.accumulate = k->image > 0 || step > 0;
        args.b.data = k->y + (o * k->steps + step) * PARTS * TILE;
        for (int64_t tap = tap_begin; tap < tap_end; tap++) {
            args.a.data = k->x + i * args.a.block + step * DEPTH + tap / width * k->pitch + tap % width;
            args.c = k->sums + ((tap * k->in + i) * SIDE) * ld + o * SIDE;
            k->kernel->run(&args);
        }
    }
}

/* Range of (square, tap). */
static void sum_range(void *user, int64_t begin, int64_t end)
{
    const work *k = user;
    int64_t across = attn__pieces(k->out, 2);
    k->kernel->begin();
    while (begin < end) {
        int64_t square = begin / k->taps, first = begin % k->taps,
                last = end - square * k->taps < k->taps ? end - square * k->taps : k->taps;
        sum_square(k, square / across * 2, square % across * 2, first, last);
        begin = square * k->taps + last;
    }
    k->kernel->end();
}

/* Blocks of y's channels: from the sums to dw.  A cache line of sums at a time, whose numbers go to lines of dw that are
 * at hand from its neighbours. */
static void put(void *user, int64_t begin, int64_t end)
{
    const work *k = user;
    const attn__conv_args *a = k->args;
    for (int64_t block = begin; block < end; block++) {
        int64_t count = channels_of(block, a->out);
        float *dw = a->w + block * SIDE * a->in * k->taps;
        for (int64_t i = 0; i < a->in * k->taps; i++) {
            const float *sums = k->sums + (i % k->taps * k->in * SIDE + i / k->taps) * k->out * SIDE + block * SIDE;
            for (int64_t o = 0; o < count; o++)
                dw[o * a->in * k->taps + i] = sums[o];
        }
    }
}

/* An odd number of cache lines in a channel's line, so that those of 16 channels do not meet in a few sets. */
static work plan(const attn__parts_kernel *kernel, const attn__conv_args *a)
{
    const attn__window_grid *g = &a->grid;
    work k = {.kernel = kernel,
              .args = a,
              .taps = g->kernel[1] * g->kernel[2],
              .in = attn__pieces(a->in, SIDE),
              .out = attn__pieces(a->out, SIDE),
              .pitch = g->out[2] + g->kernel[2] - 1};
    k.steps = attn__pieces(g->out[1] * k.pitch, DEPTH);
    k.line = (attn__pieces(k.steps * DEPTH + (g->kernel[1] - 1) * k.pitch + g->kernel[2] - 1, DEPTH) | 1) * DEPTH;
    return k;
}

static bool sum_images(work *k, int threads)
{
    int64_t squares = attn__pieces(k->in, 2) * attn__pieces(k->out, 2);
    for (k->image = 0; k->image < k->args->batch; k->image++) {
        attn__parallel_items(threads, k->in + k->out, split_block, k);
        if (!atomic_load(&k->finite))
            return false;
        attn__parallel_range(threads, squares * k->taps, 1, sum_range, k);
    }
    attn__parallel_range(threads, k->out, 1, put, k);
    return true;
}

bool attn__conv_weights_by_parts(attn_tape *tape, const attn__parts_kernel *kernel, const attn__conv_args *args)
{
    work k = plan(kernel, args);
    int threads = tape->context->threads;
    attn__hold x = attn__scratch(tape, (size_t)(k.in * SIDE * PARTS * k.line * 2)),
               y = attn__scratch(tape, (size_t)(k.out * k.steps * PARTS * TILE * 2)),
               lines = attn__scratch(tape, (size_t)(threads * SIDE * k.line) * sizeof(float)),
               sums = attn__scratch(tape, (size_t)(k.taps * k.in * SIDE * k.out * SIDE) * sizeof(float));
    bool done = x.data && y.data && lines.data && sums.data;
    if (done) {
        k.x = x.data;
        k.y = y.data;
        k.lines = lines.data;
        k.sums = sums.data;
        atomic_init(&k.finite, true);
        done = sum_images(&k, threads);
    }
    attn__scratch_release(sums);
    attn__scratch_release(lines);
    attn__scratch_release(y);
    attn__scratch_release(x);
    return done;
}
