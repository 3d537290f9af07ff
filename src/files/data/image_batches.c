/* SPDX-License-Identifier: MIT
 *
 * Makes batches of images. The order in an epoch depends only on (seed, epoch). The augmentation of an image depends
 * only on (seed, epoch, index).
 */
#include "data/images.h"

#include "base/context.h"
#include "dist/ranks.h"
#include "base/rng.h"

#include <string.h>

/* Random streams of the seed. The order and the augmentation have different streams, so they are independent of each
 * other. */
enum { STREAM_ORDER = 0x6f72, STREAM_AUGMENT = 0x6175 };

struct attn_image_batches {
    attn_context *context;
    const attn_image_set *set;
    attn_image_shape shape;
    attn_image_batches_options options;
    bool divided;
    int64_t count, epoch, position;
    int64_t *order; /* [n] */
    float *x;
    int32_t *labels;
    float level[3][256]; /* table of the normalized values: for each channel, the value of each sample from 0 to 255 */
};

/* The random generator is created anew for each epoch, so an epoch can begin without running the earlier epochs. */
static void order_epoch(attn_image_batches *b)
{
    int64_t n = attn_image_set_size(b->set);
    for (int64_t i = 0; i < n; i++)
        b->order[i] = i;
    attn__rng rng = {.seed = b->options.seed, .stream = attn__mix64(STREAM_ORDER ^ attn__mix64((uint64_t)b->epoch))};
    if (!b->options.in_order)
        attn__rng_shuffle(&rng, b->order, n);
}

static attn_status allocate(attn_image_batches *b)
{
    int64_t n = attn_image_set_size(b->set), size = b->options.size < n ? b->options.size : n;
    size_t image = (size_t)attn__image_numbers(b->shape);
    b->order = attn__alloc(b->context, attn__size_mul((size_t)n, sizeof *b->order));
    b->labels = attn__alloc(b->context, attn__size_mul((size_t)size, sizeof *b->labels));
    b->x = attn__alloc(b->context, attn__size_mul(attn__size_mul((size_t)size, image), sizeof *b->x));
    return b->order && b->labels && b->x ? ATTN_OK : ATTN_ERROR_MEMORY;
}

static void fill_levels(attn_image_batches *b)
{
    for (int c = 0; c < 3; c++) {
        float std = b->options.std[c] > 0 ? b->options.std[c] : 1;
        for (int v = 0; v < 256; v++)
            b->level[c][v] = ((float)v / 255 - b->options.mean[c]) / std;
    }
}

attn_status attn_image_batches_create(attn_image_batches **batches, attn_context *context, const attn_image_set *set,
                                      const attn_image_batches_options *options)
{
    ATTN__CALL(context);
    attn_image_batches_options o = options ? *options : (attn_image_batches_options){0};
    attn_image_shape shape = attn_image_set_shape(set);
    *batches = NULL;
    o.size = o.size ? o.size : 64;
    if (o.size < 0 || o.size > INT32_MAX)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "batches: size is %lld; it must be 0 to %d", (long long)o.size,
                          (int)INT32_MAX);
    if (o.shift < 0 || o.shift >= shape.width || o.shift >= shape.height)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "batches: shift is %lld; it must be at least 0 and less than the width and the height of the "
                          "images, %lld x %lld",
                          (long long)o.shift, (long long)shape.width, (long long)shape.height);
    attn_image_batches *b = attn__alloc_zero(context, sizeof *b);
    if (!b)
        return ATTN_ERROR_MEMORY;
    *b = (attn_image_batches){.context = context, .set = set, .shape = shape, .options = o};
    b->count = (attn_image_set_size(set) + o.size - 1) / o.size;
    attn_status status = allocate(b);
    if (status != ATTN_OK) {
        attn_image_batches_destroy(b);
        return status;
    }
    fill_levels(b);
    order_epoch(b);
    *batches = b;
    return ATTN_OK;
}

void attn_image_batches_destroy(attn_image_batches *b)
{
    if (!b)
        return;
    attn__free(b->context, b->order);
    attn__free(b->context, b->labels);
    attn__free(b->context, b->x);
    attn__free(b->context, b);
}

void attn_image_batches_shard(attn_image_batches *b)
{
    b->divided = true;
}

bool attn_image_batches_sharded(const attn_image_batches *b)
{
    return b->divided;
}

int64_t attn_image_batches_count(const attn_image_batches *b)
{
    return b->count;
}

void attn_image_batches_seek(attn_image_batches *b, int64_t epoch, int64_t position)
{
    if (epoch != b->epoch) {
        b->epoch = epoch;
        order_epoch(b);
    }
    b->position = position < 0 ? 0 : position < b->count ? position : b->count;
}

/* Position in the source image of pixel (0, 0) of the augmented image, and the direction in which the source's rows
 * are read. */
typedef struct view {
    int64_t x, y;
    bool flipped;
} view;

static view view_of(const attn_image_batches *b, int64_t index)
{
    const attn_image_batches_options *o = &b->options;
    attn__rng rng = {.seed = attn__mix64(o->seed ^ attn__mix64((uint64_t)b->epoch + STREAM_AUGMENT)),
                     .stream = (uint64_t)index};
    uint64_t places = 2 * (uint64_t)o->shift + 1;
    view v = {0};
    if (o->shift > 0) {
        v.x = (int64_t)attn__rng_below(&rng, places) - o->shift;
        v.y = (int64_t)attn__rng_below(&rng, places) - o->shift;
    }
    v.flipped = o->flip && attn__rng_below(&rng, 2) == 1;
    return v;
}

static void fill_frame(const attn_image_batches *b, const unsigned char *pixels, view v, float *to)
{
    attn_image_shape s = b->shape;
    for (int64_t c = 0; c < s.channels; c++) {
        for (int64_t y = 0; y < s.height; y++) {
            int64_t row = y + v.y;
            for (int64_t x = 0; x < s.width; x++, to++) {
                int64_t column = (v.flipped ? s.width - 1 - x : x) + v.x;
                bool inside = row >= 0 && row < s.height && column >= 0 && column < s.width;
                *to = b->level[c][inside ? pixels[(row * s.width + column) * s.channels + c] : 0];
            }
        }
    }
}

/* Writes the augmented image to `to`. All frames of a video get the same augmentation. */
static void fill_image(const attn_image_batches *b, int64_t index, float *to)
{
    const unsigned char *pixels = attn_image_set_pixels(b->set, index);
    int64_t frame = b->shape.width * b->shape.height * b->shape.channels;
    view v = view_of(b, index);
    for (int64_t f = 0; f < b->shape.frames; f++)
        fill_frame(b, pixels + f * frame, v, to + f * frame);
}

bool attn_image_batches_next(attn_image_batches *b, attn_image_batch *batch)
{
    int64_t n = attn_image_set_size(b->set), begin = b->position * b->options.size;
    if (b->position >= b->count)
        return false;
    int64_t whole = n - begin < b->options.size ? n - begin : b->options.size, first = 0, size = whole;
    size_t image = (size_t)attn__image_numbers(b->shape);
    if (b->divided)
        size = attn__ranks_share(b->context, whole, &first);
    bool stands_in = size == 0;
    if (stands_in) {
        first = 0;
        size = 1;
    }
    for (int64_t i = 0; i < size; i++) {
        int64_t index = b->order[begin + first + i];
        b->labels[i] = attn_image_set_label(b->set, index);
        fill_image(b, index, b->x + (size_t)i * image);
    }
    b->position++;
    *batch = (attn_image_batch){.size = size,
                                .x = b->x,
                                .labels = b->labels,
                                .indices = b->order + begin + first,
                                .first = first,
                                .whole = whole,
                                .stands_in = stands_in};
    return true;
}
