/* SPDX-License-Identifier: MIT
 * The gradient of a convolution's weights in the matrix unit: dw[o][i][tap] = sum over places of dy[o][place]
 * x[i][place + tap], in squares of 16 channels of one by 16 of the other.
 *
 * The operand with fewer channels is the one that taps move: its digits are there once for each column of the kernel,
 * moved by that much and without borders, so that rows of the kernel are whole rows of the image apart.  The other is
 * cut as it lies.  Places are taken in bands of rows, in which a channel has one unit. */
#include "base/integers.h"
#include "base/parallel.h"
#include "tensor/conv_digits.h"
#include "tensor/op.h"

#include <math.h>
#include <string.h>

enum { SIDE = ATTN__DIGITS_SIDE, DEPTH = ATTN__DIGITS_DEPTH, STEP = ATTN__DIGITS_STEP, SQUARE = ATTN__DIGITS_SQUARE };
enum { LISTED = 36, BLOCKS = 4 }; /* squares of a list; blocks of 16 channels of an item */

/* One of the operands: [batch][channels][height][width]. */
typedef struct operand {
    const float *x;
    int64_t channels, blocks, height, width;
} operand;

/* What the threads share. */
typedef struct work {
    const attn__digits_kernel *kernel;
    const attn__conv_args *args;
    bool flipped; /* dy is moved, and x as it lies: taps from the last to the first */
    operand moved, still;
    int64_t high, wide, top, left; /* the kernel, and the border of what is moved */
    int64_t band;                  /* rows at once */
    int64_t image, row, rows;      /* the ones at hand */
    int64_t line, steps;           /* bytes of a digit of a channel that is moved; tiles along a band */
    int8_t *tiles, *lines;         /* [block of still][steps]; [column][channel of moved][digit][line] */
    float *row_unit, *column_unit; /* [column][channel of moved]; [channel of still] */
    bool *fine, *block_fine;       /* [column][channel of moved]; [block of still] */
    int64_t line_of_image;         /* bytes of a digit of a channel as it lies */
    int8_t *digits;                /* [thread][digit][line_of_image] */
    float *sums;                   /* [block of still][tap][channel of moved][16] */
    atomic_bool held;
} work;

static int64_t channels_of(const operand *o, int64_t block)
{
    return attn__least(o->channels - block * SIDE, SIDE);
}

/* Some channels of what lies still, as columns. */
static void cut_still(work *k, int64_t block)
{
    const operand *o = &k->still;
    int64_t plane = o->height * o->width, n = k->rows * o->width, count = channels_of(o, block);
    int8_t *tiles = k->tiles + block * k->steps * STEP;
    const float *x = o->x + ((k->image * o->channels + block * SIDE) * o->height + k->row) * o->width;
    k->block_fine[block] = false;
    for (int64_t i = 0; i < SIDE; i++) {
        attn__digits_scale scale = i < count ? k->kernel->scale(x + i * plane, NULL, n) : (attn__digits_scale){0};
        k->kernel->cut(x + (i < count ? i : 0) * plane, NULL, scale.cut, n, tiles + i * DEPTH);
        k->column_unit[block * SIDE + i] = scale.unit;
        k->block_fine[block] = k->block_fine[block] || scale.fine;
        if (isnan(scale.unit))
            atomic_store(&k->held, false);
    }
    k->kernel->turn(tiles, attn__pieces(n, DEPTH) * ATTN__DIGITS);
}

/* The rows of a channel that a band meets, moved by a column of the kernel: zeros come in from the border. */
static void move(const work *k, const int8_t *from, int64_t first, int64_t rows, int64_t column, int8_t *to)
{
    int64_t width = k->still.width, shift = column - k->left, all = k->rows + k->high - 1;
    int64_t begin = attn__least(attn__most(-shift, 0), width);
    int64_t end = attn__most(attn__least(k->moved.width - shift, width), begin);
    for (int d = 0; d < ATTN__DIGITS; d++, from += k->line_of_image, to += k->line) {
        memset(to, 0, (size_t)(first * width));
        memset(to + (first + rows) * width, 0, (size_t)((all - first - rows) * width));
        k->kernel->move(&(attn__digits_rows){from + shift, k->moved.width, rows, begin, end}, width,
                        to + first * width);
    }
}

/* A channel is cut once: it has one unit, whatever of it a column leaves out. */
static void cut_moved(work *k, int64_t block, int8_t *digits)
{
    const operand *o = &k->moved;
    int64_t all = o->blocks * SIDE, top = k->row - k->top, first = attn__most(-top, 0);
    int64_t rows = attn__most(attn__least(o->height - top, k->rows + k->high - 1) - first, 0);
    first = rows > 0 ? first : 0;
    for (int64_t i = 0; i < SIDE; i++) {
        bool there = rows > 0 && i < channels_of(o, block);
        const float *x = o->x;
        if (there)
            x += ((k->image * o->channels + block * SIDE + i) * o->height + top + first) * o->width;
        attn__digits_scale scale = there ? k->kernel->scale(x, NULL, rows * o->width) : (attn__digits_scale){0};
        if (there)
            k->kernel->cut_line(x, scale.cut, rows * o->width, k->line_of_image, digits);
        for (int64_t column = 0; column < k->wide; column++) {
            int64_t at = column * all + block * SIDE + i;
            move(k, digits, first, there ? rows : 0, column, k->lines + at * ATTN__DIGITS * k->line);
            k->row_unit[at] = scale.unit;
            k->fine[at] = scale.fine;
        }
        if (isnan(scale.unit))
            atomic_store(&k->held, false);
    }
}

static void cut_block(void *user, int64_t item, int thread)
{
    work *k = user;
    if (attn__is_of_first(&item, k->moved.blocks, k->moved.blocks + k->still.blocks))
        cut_moved(k, item, k->digits + thread * ATTN__DIGITS * k->line_of_image);
    else
        cut_still(k, item);
}

/* ------------------------------------------------------------------------------------------------- products */

static void do_nothing(attn__digits_beside *beside)
{
    (void)beside;
}

/* A block of what is moved, and a tap. */
static attn__digits_square square_of(const work *k, int64_t panel, int64_t block, int64_t tap, bool *odd)
{
    int64_t all = k->moved.blocks * SIDE, channel = tap % k->wide * all + block * SIDE;
    float *to = k->sums + ((panel * k->high * k->wide + tap) * all + block * SIDE) * SIDE;
    bool first = k->image == 0 && k->row == 0;
    return (attn__digits_square){.a = k->lines + channel * ATTN__DIGITS * k->line + tap / k->wide * k->still.width,
                                 .b = k->tiles + panel * k->steps * STEP,
                                 .row_unit = k->row_unit + channel,
                                 .column_unit = k->column_unit + panel * SIDE,
                                 .fine = k->fine + channel,
                                 .all_fine = k->block_fine[panel],
                                 .before = first ? NULL : to,
                                 .before_ld = SIDE,
                                 .to = to,
                                 .odd = odd};
}

/* All steps of some squares, so many at a time that the panel's tiles stay in the first cache, with the lines of those
 * squares that follow each other in the kernel's rows, which are the same but for the ends. */
static void sum_squares(const work *k, attn__digits_square *squares, int64_t count, attn__digits_state *state)
{
    enum { AT_ONCE = 6 };
    int64_t steps = attn__pieces(k->rows * k->still.width, DEPTH);
    int64_t each = attn__pieces(steps, attn__pieces(steps, AT_ONCE));
    attn__digits_beside beside = {do_nothing};
    attn__digits_list list = {.squares = squares,
                              .count = count,
                              .a_row = ATTN__DIGITS * k->line,
                              .a_digit = k->line,
                              .a_step = DEPTH,
                              .ld = SIDE};
    for (int64_t step = 0; step < steps; step += each) {
        list.steps = attn__least(steps - step, each);
        k->kernel->run_list(&list, state, &beside);
        for (int64_t i = 0; i < count; i++) {
            squares[i].a += each * DEPTH;
            squares[i].b += each * STEP;
            squares[i].before = squares[i].to;
        }
    }
    k->kernel->finish(state);
}

/* A panel of what lies still by some blocks of what is moved, all taps of them: those of a column of the kernel, which
 * read the same lines, one after the other. */
static void sum_item(void *user, int64_t item, int thread)
{
    work *k = user;
    int64_t panel = item % k->still.blocks, first = item / k->still.blocks * BLOCKS;
    int64_t blocks = attn__least(k->moved.blocks - first, BLOCKS), all = blocks * k->high * k->wide, count;
    attn__digits_state state = {0};
    attn__digits_square squares[LISTED];
    bool odd[LISTED] = {0};
    (void)thread;
    k->kernel->begin();
    for (int64_t i = 0; i < all; i += count) {
        count = attn__least(all - i, LISTED);
        for (int64_t j = 0; j < count; j++) {
            int64_t column = (i + j) / k->high, tap = (i + j) % k->high * k->wide + column / blocks;
            squares[j] = square_of(k, panel, first + column % blocks, tap, &odd[j]);
        }
        sum_squares(k, squares, count, &state);
        for (int64_t j = 0; j < count; j++)
            if (odd[j])
                atomic_store(&k->held, false);
    }
    k->kernel->end();
}

/* ------------------------------------------------------------------------------------------------- the result */

static const float *sums_at(const work *k, int64_t panel, int64_t tap, int64_t channel)
{
    int64_t taps = k->high * k->wide;
    return k->sums + ((panel * taps + (k->flipped ? taps - 1 - tap : tap)) * k->moved.blocks * SIDE + channel) * SIDE;
}

/* dy's channels lie still: 16 of (channel of x, tap) are adjacent in dw. */
static void put_results(const work *k, int64_t panel)
{
    int64_t taps = k->high * k->wide, n = k->moved.channels * taps, tap = 0, channel = 0;
    for (int64_t i = 0; i < n; i += SIDE) {
        const float *from[SIDE];
        int64_t count = attn__least(n - i, SIDE);
        for (int64_t j = 0; j < count; j++) {
            from[j] = sums_at(k, panel, tap, channel);
            if (++tap == taps)
                tap = 0, channel++;
        }
        k->kernel->put_turned(from, channels_of(&k->still, panel), count, k->args->w + panel * SIDE * n + i, n,
                              k->args->add);
    }
}

/* x's do: the taps of 16 of its channels are. */
static void put_channels(const work *k, int64_t panel)
{
    int64_t taps = k->high * k->wide, n = k->still.channels * taps;
    for (int64_t o = 0; o < k->moved.channels; o++) {
        for (int64_t i = 0; i < taps; i += SIDE) {
            const float *from[SIDE];
            int64_t count = attn__least(taps - i, SIDE);
            for (int64_t j = 0; j < count; j++)
                from[j] = sums_at(k, panel, i + j, o);
            k->kernel->put_turned(from, channels_of(&k->still, panel), count,
                                  k->args->w + o * n + panel * SIDE * taps + i, taps, k->args->add);
        }
    }
}

static void put(void *user, int64_t begin, int64_t end)
{
    const work *k = user;
    for (int64_t panel = begin; panel < end; panel++)
        (k->flipped ? put_channels : put_results)(k, panel);
}

/* ---------------------------------------------------------------------------------------------------- whole */

/* An odd number of lines in a digit, so that those of 16 channels do not meet in a few sets of the cache. */
static work plan(const attn__digits_kernel *kernel, const attn__conv_args *a)
{
    enum { BAND = 1024 };
    const attn__window_grid *g = &a->grid;
    operand x = {a->x, a->in, attn__pieces(a->in, SIDE), g->in[1], g->in[2]};
    operand y = {a->y, a->out, attn__pieces(a->out, SIDE), g->out[1], g->out[2]};
    work k = {.kernel = kernel, .args = a, .high = g->kernel[1], .wide = g->kernel[2]};
    k.top = k.high - 1 - g->padding[1];
    k.left = k.wide - 1 - g->padding[2];
    k.flipped = a->out < a->in && k.top >= 0 && k.left >= 0;
    k.moved = k.flipped ? y : x;
    k.still = k.flipped ? x : y;
    k.top = k.flipped ? k.top : g->padding[1];
    k.left = k.flipped ? k.left : g->padding[2];
    k.band = attn__least(attn__most(BAND / k.still.width, 1), k.still.height);
    k.steps = attn__pieces(k.band * k.still.width, DEPTH);
    k.line = (attn__pieces(k.steps * DEPTH + (k.high - 1) * k.still.width, DEPTH) | 1) * DEPTH;
    k.line_of_image = attn__round_up((k.band + k.high - 1) * k.moved.width, DEPTH) + DEPTH;
    return k;
}

/* Chunks of places, each added to those before. */
static void sum_images(work *k, int threads)
{
    int64_t items = k->still.blocks * attn__pieces(k->moved.blocks, BLOCKS);
    for (k->image = 0; k->image < k->args->batch; k->image++) {
        for (k->row = 0; k->row < k->still.height; k->row += k->band) {
            k->rows = attn__least(k->still.height - k->row, k->band);
            attn__parallel_items(threads, k->moved.blocks + k->still.blocks, cut_block, k);
            if (!atomic_load(&k->held))
                return;
            attn__parallel_items(threads, items, sum_item, k);
        }
    }
    if (atomic_load(&k->held))
        attn__parallel_range(threads, k->still.blocks, 1, put, k);
}

enum { LINES, TILES, ROW_UNITS, COLUMN_UNITS, DIGITS, SUMS, FINE, BLOCK_FINE, ARRAYS };

static size_t sizes_of(const work *k, int threads, size_t size[ARRAYS])
{
    const int64_t number = sizeof(float);
    int64_t moved = k->moved.blocks * SIDE, still = k->still.blocks * SIDE;
    int64_t bytes[ARRAYS] = {[LINES] = k->wide * moved * ATTN__DIGITS * k->line,
                             [TILES] = k->still.blocks * k->steps * STEP,
                             [ROW_UNITS] = k->wide * moved * number,
                             [COLUMN_UNITS] = still * number,
                             [DIGITS] = threads * ATTN__DIGITS * k->line_of_image,
                             [SUMS] = k->high * k->wide * moved * still * number,
                             [FINE] = k->wide * moved,
                             [BLOCK_FINE] = k->still.blocks};
    size_t all = 0;
    for (int i = 0; i < ARRAYS; i++)
        all += size[i] = (size_t)attn__round_up(bytes[i], DEPTH);
    return all;
}

static void lay_out(work *k, char *data, const size_t size[ARRAYS])
{
    void *at[ARRAYS];
    for (int i = 0; i < ARRAYS; data += size[i++])
        at[i] = data;
    k->lines = at[LINES];
    k->tiles = at[TILES];
    k->row_unit = at[ROW_UNITS];
    k->column_unit = at[COLUMN_UNITS];
    k->digits = at[DIGITS];
    k->sums = at[SUMS];
    k->fine = at[FINE];
    k->block_fine = at[BLOCK_FINE];
}

bool attn__conv_weights_by_digits(attn_tape *tape, const attn__digits_kernel *kernel, const attn__conv_args *args)
{
    work k = plan(kernel, args);
    int threads = tape->context->threads;
    size_t size[ARRAYS];
    attn__hold hold = attn__scratch(tape, sizes_of(&k, threads, size));
    if (!hold.data)
        return false;
    lay_out(&k, hold.data, size);
    atomic_init(&k.held, true);
    sum_images(&k, threads);
    attn__scratch_release(hold);
    return atomic_load(&k.held);
}
