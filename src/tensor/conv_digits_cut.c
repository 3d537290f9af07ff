/* SPDX-License-Identifier: MIT
 * The operands of conv_digits.c as digits. */
#include "base/integers.h"
#include "tensor/conv_digits.h"
#include "tensor/gemm_digits.h"

#include <math.h>
#include <string.h>

enum { SIDE = ATTN__DIGITS_SIDE, DEPTH = ATTN__DIGITS_DEPTH, STEP = ATTN__DIGITS_STEP };

/* ------------------------------------------------------------------------------------------------- weights */

static int64_t channels_of(const attn__correlating *k, int64_t block)
{
    return attn__least(k->c->channels - block * k->depth, k->depth);
}

static void cut_chunk(attn__correlating *k, int64_t at, const float *rows)
{
    attn__digits_scale scale[SIDE];
    k->c->kernel->cut_sixteen(rows, k->c->kernel_width * k->depth, scale, k->weights + at * k->steps * STEP);
    k->panel_fine[at] = false;
    for (int i = 0; i < SIDE; i++) {
        k->column_units[at * SIDE + i] = scale[i].unit;
        k->panel_fine[at] = k->panel_fine[at] || scale[i].fine;
        if (isnan(scale[i].unit))
            atomic_store(&k->held, false);
    }
}

/* Some rows of the kernel, which are as many chunks. */
static void cut_chunks(attn__correlating *k, int64_t panel, int64_t block, int64_t first, int64_t count, float *rows)
{
    const attn__correlation *c = k->c;
    int64_t tap = c->flipped ? c->kernel_height - first - count : first;
    attn__digits_taps from = {.w = c->w + panel * SIDE * c->result_stride + block * k->depth * c->channel_stride +
                                   tap * c->kernel_width,
                              .result_stride = c->result_stride,
                              .channel_stride = c->channel_stride,
                              .results = attn__least(c->results - panel * SIDE, SIDE),
                              .taps = count * c->kernel_width,
                              .channels = channels_of(k, block),
                              .padded = k->depth,
                              .flipped = c->flipped,
                              .spread = k->spread_w ? k->spread_w + block * k->depth : NULL};
    c->kernel->gather(&from, rows);
    for (int64_t i = 0; i < count; i++)
        cut_chunk(k, panel * k->chunks + block * c->kernel_height + first + i,
                  rows + i * c->kernel_width * k->depth * SIDE);
}

static void cut_weights(attn__correlating *k, int64_t panel, float *rows)
{
    int64_t high = k->c->kernel_height;
    for (int64_t block = 0; block < k->blocks; block++)
        for (int64_t first = 0; first < high; first += k->gathered)
            cut_chunks(k, panel, block, first, attn__least(high - first, k->gathered), rows);
}

enum { LOOKED_AT = 256 }; /* numbers at once */

/* The mean of what numbers have as exponents, and the most, as attn__gemm_digits_spread_of wants them. */
static void conclude(int64_t n, const float *sum, const float *count, const float *each, float *mean, float *most)
{
    float all = 0, of = 0, top = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        all += sum[i];
        of += count[i];
        top = fmaxf(top, each[i]);
    }
    *mean = of > 0 ? all / of : NAN;
    *most = of > 0 ? top : NAN;
}

/* Of as many results as say it, where some channels of a result are adjacent. */
static void look_at_channels(const attn__correlation *c, int64_t channel, int64_t n, float *mean, float *most)
{
    enum { TAKEN = 8 };
    int64_t taps = attn__least(c->kernel_height * c->kernel_width, LOOKED_AT);
    float sum[LOOKED_AT] = {0}, count[LOOKED_AT] = {0}, each[LOOKED_AT];
    for (int i = 0; i < LOOKED_AT; i++)
        each[i] = -INFINITY;
    for (int64_t i = 0; i < c->results; i += attn__pieces(c->results, TAKEN))
        c->kernel->exponents(c->w + i * c->result_stride + channel * c->channel_stride, n * taps, sum, count, each);
    for (int64_t i = 0; i < n; i++)
        conclude(taps, sum + i * taps, count + i * taps, each + i * taps, &mean[channel + i], &most[channel + i]);
}

/* The same where some results of a channel are. */
static void look_at_results(const attn__correlation *c, int64_t channel, float *mean, float *most)
{
    int64_t n = attn__least(c->results, SIDE) * c->kernel_height * c->kernel_width;
    float sum = 0, count = 0, each = -INFINITY;
    c->kernel->exponents_of_row(c->w + channel * c->channel_stride, attn__least(n, LOOKED_AT), SIDE, &sum, &count,
                                &each);
    conclude(1, &sum, &count, &each, &mean[channel], &most[channel]);
}

bool attn__correlating_spread(const attn__correlation *c, float *spread_x, float *spread_w)
{
    int64_t taps = c->kernel_height * c->kernel_width, at_once = attn__most(LOOKED_AT / taps, 1);
    for (int64_t i = 0; i < c->channels && c->channel_stride != taps; i++)
        look_at_results(c, i, spread_x, spread_w);
    for (int64_t i = 0; i < c->channels && c->channel_stride == taps; i += at_once)
        look_at_channels(c, i, attn__least(c->channels - i, at_once), spread_x, spread_w);
    return attn__gemm_digits_spread_of(c->channels, spread_x, spread_w);
}

/* -------------------------------------------------------------------------------------------------- images */

/* Places [begin, end) of a strip are inside of the image, from column x on. */
typedef struct span {
    int64_t begin, end, x;
} span;

static span span_of(const attn__correlating *k, int64_t strip)
{
    int64_t x = strip * k->across * SIDE - k->c->left;
    int64_t begin = attn__least(attn__most(-x, 0), k->places), end = attn__least(k->c->width - x, k->places);
    return (span){begin, attn__most(end, begin), x + begin};
}

/* All of one unit; borders are zeros.  Rows lie an image's plane apart and would push each other out of the first cache
 * before they are cut: what is cut is their copy. */
static void cut_block(attn__correlating *k, const float *from, span s, int64_t block, int64_t at, float *copy)
{
    const attn__correlation *c = k->c;
    int8_t *to = k->digits + at * ATTN__DIGITS * k->plane;
    attn__digits_columns columns = {.x = from,
                                    .ld = c->height * c->width,
                                    .k = channels_of(k, block),
                                    .n = s.end - s.begin,
                                    .spread = k->spread_x ? k->spread_x + block * k->depth : NULL,
                                    .copy = copy};
    attn__digits_scale scale = c->kernel->scale_block(&columns);
    columns = (attn__digits_columns){.x = copy, .ld = attn__round_up(columns.n, SIDE), .k = columns.k};
    for (int d = 0; d < ATTN__DIGITS; d++) {
        memset(to + d * k->plane, 0, (size_t)(s.begin * k->depth));
        memset(to + d * k->plane + s.end * k->depth, 0, (size_t)((k->places - s.end) * k->depth));
    }
    for (int64_t i = s.begin; i < s.end; i += SIDE, columns.x += SIDE) {
        columns.n = attn__least(s.end - i, SIDE);
        c->kernel->cut_across(&columns, scale.cut, k->depth, k->plane, to + i * k->depth);
    }
    for (int i = 0; i < SIDE; i++)
        k->units[at * SIDE + i] = scale.unit;
    memset(k->fine + at * SIDE, scale.fine, SIDE);
    if (isnan(scale.unit))
        atomic_store(&k->held, false);
}

static void cut_row(attn__correlating *k, int64_t strip, int64_t row, int64_t image, float *copy)
{
    const attn__correlation *c = k->c;
    int64_t y = row - c->top, index = ((image - k->image) * k->rows + row) * k->strips + strip;
    span s = span_of(k, strip);
    if (y < 0 || y >= c->height)
        s = (span){0, 0, 0};
    for (int64_t block = 0; block < k->blocks; block++)
        cut_block(
            k, c->from + ((image * c->channels + block * k->depth) * c->height + (s.end > 0 ? y : 0)) * c->width + s.x,
            s, block, index * k->blocks + block, copy);
}

/* Neighbouring rows, lines of which are fetched together. */
static void cut_rows(attn__correlating *k, int64_t item, float *copy)
{
    int64_t groups = attn__pieces(k->rows, k->rows_each), group = item / k->strips % groups;
    int64_t last = attn__least((group + 1) * k->rows_each, k->rows);
    for (int64_t row = group * k->rows_each; row < last; row++)
        cut_row(k, item % k->strips, row, k->image + item / k->strips / groups, copy);
}

static int64_t panels_of(const attn__correlating *k)
{
    return k->image == 0 ? k->panels : 0;
}

int64_t attn__correlating_items(const attn__correlating *k)
{
    return panels_of(k) + k->images * attn__pieces(k->rows, k->rows_each) * k->strips;
}

/* Weights with the first images. */
void attn__correlating_cut(void *work, int64_t item, int thread)
{
    attn__correlating *k = work;
    float *numbers = k->numbers + thread * k->each;
    if (attn__is_of_first(&item, panels_of(k), attn__correlating_items(k)))
        cut_weights(k, item, numbers);
    else
        cut_rows(k, item, numbers);
}
