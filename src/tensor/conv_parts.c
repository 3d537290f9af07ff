/* SPDX-License-Identifier: MIT
 * Convolutions in the matrix unit: y from x and w, and dx from dy and w, which is the same with the taps flipped.
 *
 * Channels are summed in pairs, so a row of the bordered image is kept as [channels / 2][part][column][2]: 16 pairs of
 * channels by 16 columns are a tile, wherever it begins, and the rows that one row of the result needs lie together. */
#include "tensor/conv_parts.h"

#include "base/integers.h"
#include "base/parallel.h"
#include "tensor/op.h"

#include <stdatomic.h>
#include <string.h>

enum { PARTS = ATTN__PARTS_F32, SIDE = ATTN__PARTS_SIDE, DEPTH = ATTN__PARTS_DEPTH, TILE = ATTN__PARTS_TILE };

/* What the threads share. */
typedef struct work {
    const attn__correlation *c;
    int64_t steps, channel_steps; /* of a sum, of one tap of it; 32 channels each */
    int64_t blocks;               /* of 16 results */
    int64_t across, pairs;        /* tiles in a row of the result; pairs of tiles in an image */
    int64_t pitch, line, rows;    /* pairs in a row of one channel pair and part, numbers in a row of the image; rows */
    int64_t image, images;        /* the first one at hand, and how many */
    int64_t group;                /* blocks of results that are worked on together */
    uint16_t *weights, *panel;
    float *bias; /* of whole blocks; NULL: none */
    int64_t *at; /* where each step of the sum begins in the panel */
    atomic_bool finite;
} work;

/* 16 results' weights of each tap beside each other, as rows. */
static void gather_weights(const work *k, int64_t block, float *rows)
{
    const attn__correlation *c = k->c;
    int64_t taps = c->kernel_height * c->kernel_width, depth = k->channel_steps * DEPTH;
    int64_t count = c->results - block * SIDE < SIDE ? c->results - block * SIDE : SIDE;
    if (count < SIDE || c->channels < depth)
        memset(rows, 0, (size_t)(SIDE * taps * depth) * sizeof *rows);
    for (int64_t i = 0; i < count * taps; i++) {
        int64_t tap = i % taps, stride = c->channel_stride, channels = c->channels;
        const float *from = c->w + (block * SIDE + i / taps) * c->result_stride + (c->flipped ? taps - 1 - tap : tap);
        float *to = rows + i * depth;
        for (int64_t channel = 0; channel < channels; channel++)
            to[channel] = from[channel * stride];
    }
}

typedef struct weights_work {
    work *k;
    float *rows; /* a block's for each thread */
} weights_work;

static void split_weights(void *user, int64_t block, int thread)
{
    const weights_work *job = user;
    work *k = job->k;
    int64_t columns = k->steps * DEPTH;
    float *rows = job->rows + thread * SIDE * columns;
    gather_weights(k, block, rows);
    attn__parts_side to = {k->weights + block * k->steps * PARTS * TILE, 0, (int64_t)PARTS * TILE, TILE, DEPTH};
    attn__parts_rows from = {
        .data = rows, .dtype = ATTN_F32, .ld = columns, .rows = SIDE, .columns = columns, .factor = 1, .parts = PARTS};
    if (!k->c->kernel->split_rows(&from, &to))
        atomic_store(&k->finite, false);
}

/* Rows of the bordered images, those of zeros above and below included. */
static void split_images(void *user, int64_t begin, int64_t end)
{
    work *k = user;
    const attn__correlation *c = k->c;
    for (int64_t i = begin; i < end; i++) {
        uint16_t *line = k->panel + i * k->line;
        int64_t image = k->image + i / k->rows, y = i % k->rows - c->top;
        memset(line, 0, (size_t)k->line * sizeof *line);
        if (y < 0 || y >= c->height)
            continue;
        attn__parts_side to = {line + 2 * c->left, 2 * SIDE, PARTS * k->pitch * 2 * SIDE, k->pitch * 2,
                               PARTS * k->pitch * 2};
        attn__parts_rows from = {.data = c->from + (image * c->channels * c->height + y) * c->width,
                                 .dtype = ATTN_F32,
                                 .ld = c->height * c->width,
                                 .rows = c->channels,
                                 .columns = c->width,
                                 .factor = 1,
                                 .parts = PARTS};
        if (!c->kernel->split_pairs(&from, &to))
            atomic_store(&k->finite, false);
    }
}

/* Where a tile of the result is. */
typedef struct place {
    int64_t image, y, x;
} place;

static place place_of(const work *k, int64_t image, int64_t tile)
{
    return (place){image, tile / k->across, tile % k->across * SIDE};
}

static int64_t panel_at(const work *k, place p)
{
    return (p.image * k->rows + p.y) * k->line + 2 * p.x;
}

static float *result_at(const work *k, place p, int64_t block)
{
    const attn__correlation *c = k->c;
    return c->to + (((k->image + p.image) * c->results + block * SIDE) * c->out_height + p.y) * c->out_width + p.x;
}

/* What is inside of a tile of 16 results by 16 columns, to where it belongs. */
static void put(const work *k, place p, int64_t block, const float *tile)
{
    const attn__correlation *c = k->c;
    int64_t columns = c->out_width - p.x < SIDE ? c->out_width - p.x : SIDE;
    int64_t count = c->results - block * SIDE < SIDE ? c->results - block * SIDE : SIDE;
    float *to = result_at(k, p, block);
    for (int64_t i = 0; i < count; i++)
        memcpy(to + i * c->out_height * c->out_width, tile + i * 2 * SIDE, (size_t)columns * sizeof *to);
}

/* Two tiles of columns by a group of blocks of results, straight to where they belong or, at borders, by way of a
 * square of their own. */
static void correlate_pair(const work *k, int64_t group, int64_t image, int64_t pair)
{
    const attn__correlation *c = k->c;
    float _Alignas(64) sums[2 * SIDE][2 * SIDE];
    int64_t tile = 2 * pair, n = tile + 1 < k->across * c->out_height ? 2 : 1;
    place p[2] = {place_of(k, image, tile), place_of(k, image, tile + n - 1)};
    bool whole = p[1].y == p[0].y && p[1].x + SIDE <= c->out_width;
    int64_t at = panel_at(k, p[0]), last = (group + 1) * k->group < k->blocks ? (group + 1) * k->group : k->blocks;
    attn__parts_args args = {
        .n = n,
        .k = k->steps,
        .parts = PARTS,
        .a = {.block = k->steps * PARTS * TILE, .step = (int64_t)PARTS * TILE, .part = TILE, .row = DEPTH},
        .b = {.data = k->panel + at,
              .block = panel_at(k, p[1]) - at,
              .part = k->pitch * 2,
              .row = PARTS * k->pitch * 2},
        .b_steps = k->at};
    for (int64_t block = group * k->group; block < last; block += 2) {
        args.m = block + 1 < last ? 2 : 1;
        args.a.data = k->weights + block * k->steps * PARTS * TILE;
        args.bias = k->bias ? k->bias + block * SIDE : NULL;
        bool straight = whole && (block + args.m) * SIDE <= c->results;
        args.c = straight ? result_at(k, p[0], block) : &sums[0][0];
        args.ldc = straight ? c->out_height * c->out_width : 2 * SIDE;
        c->kernel->run(&args);
        for (int64_t i = 0; i < args.m * n && !straight; i++)
            put(k, p[i % n], block + i / n, &sums[i / n * SIDE][i % n * SIDE]);
    }
}

static void correlate(void *user, int64_t begin, int64_t end)
{
    const work *k = user;
    k->c->kernel->begin();
    for (int64_t i = begin; i < end; i++)
        correlate_pair(k, i / (k->images * k->pairs), i / k->pairs % k->images, i % k->pairs);
    k->c->kernel->end();
}

static work plan(const attn__correlation *c)
{
    enum { GROUP_BYTES = 1 << 20 };
    work k = {.c = c,
              .channel_steps = attn__pieces(c->channels, DEPTH),
              .blocks = attn__pieces(c->results, SIDE),
              .across = attn__pieces(c->out_width, SIDE),
              .rows = c->out_height + c->kernel_height - 1};
    k.steps = k.channel_steps * c->kernel_height * c->kernel_width;
    k.pairs = attn__pieces(k.across * c->out_height, 2);
    int64_t read = k.across * SIDE + c->kernel_width - 1, written = c->left + attn__pieces(c->width, SIDE) * SIDE;
    k.pitch = read > written ? read : written;
    k.line = k.channel_steps * SIDE * PARTS * k.pitch * 2;
    k.group = GROUP_BYTES / (k.steps * PARTS * TILE * 2) / 2 * 2;
    k.group = k.group < 2 ? 2 : k.group > k.blocks ? k.blocks : k.group;
    return k;
}

static void find_steps(const work *k)
{
    for (int64_t step = 0; step < k->steps; step++) {
        int64_t tap = step / k->channel_steps, y = tap / k->c->kernel_width, x = tap % k->c->kernel_width;
        k->at[step] = y * k->line + 2 * x + step % k->channel_steps * SIDE * PARTS * k->pitch * 2;
    }
}

static void correlate_images(work *k, int64_t at_once)
{
    const attn__correlation *c = k->c;
    int threads = c->tape->context->threads;
    for (k->image = 0; k->image < c->batch && atomic_load(&k->finite); k->image += at_once) {
        k->images = c->batch - k->image < at_once ? c->batch - k->image : at_once;
        attn__parallel_range(threads, k->images * k->rows, 1, split_images, k);
        if (atomic_load(&k->finite))
            attn__parallel_range(threads, attn__pieces(k->blocks, k->group) * k->images * k->pairs, 1, correlate, k);
    }
}

bool attn__correlate_by_parts(const attn__correlation *c)
{
    enum { PANEL_BYTES = 2 << 20 };
    work k = plan(c);
    int threads = c->tape->context->threads;
    int64_t image_bytes = k.rows * k.line * 2, at_once = PANEL_BYTES / image_bytes;
    at_once = at_once < 1 ? 1 : at_once > c->batch ? c->batch : at_once;
    attn__hold weights = attn__scratch(c->tape, (size_t)(k.blocks * k.steps * PARTS * TILE * 2)),
               panel = attn__scratch(c->tape, (size_t)(at_once * image_bytes)),
               rows = attn__scratch(c->tape, (size_t)(threads * k.steps * DEPTH * SIDE) * sizeof(float)),
               at = attn__scratch(c->tape, (size_t)k.steps * sizeof *k.at),
               bias = attn__scratch(c->tape, (size_t)(k.blocks * SIDE) * sizeof(float));
    bool done = weights.data && panel.data && rows.data && at.data && bias.data;
    if (done) {
        k.weights = weights.data;
        k.panel = panel.data;
        k.at = at.data;
        atomic_init(&k.finite, true);
        find_steps(&k);
        if (c->bias) {
            k.bias = memset(bias.data, 0, (size_t)(k.blocks * SIDE) * sizeof(float));
            memcpy(k.bias, c->bias, (size_t)c->results * sizeof(float));
        }
        attn__parallel_items(threads, k.blocks, split_weights, &(weights_work){&k, rows.data});
        correlate_images(&k, at_once);
        done = atomic_load(&k.finite);
    }
    attn__scratch_release(bias);
    attn__scratch_release(at);
    attn__scratch_release(rows);
    attn__scratch_release(panel);
    attn__scratch_release(weights);
    return done;
}
