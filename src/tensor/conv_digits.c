/* SPDX-License-Identifier: MIT
 * Convolutions in the matrix unit: y from x and w, and dx from dy and w, which is the same with the taps flipped.
 *
 * Places of the result are the rows of a square, results its columns.  An item is a band of rows, whose digits stay in
 * the second cache while panels of weights pass; the sums of one panel go to where they belong, turned, beside the
 * products of the next. */
#include "tensor/conv_digits.h"

#include "base/integers.h"
#include "base/parallel.h"
#include "tensor/op.h"

#include <string.h>

enum { SIDE = ATTN__DIGITS_SIDE, DEPTH = ATTN__DIGITS_DEPTH, STEP = ATTN__DIGITS_STEP, SQUARE = ATTN__DIGITS_SQUARE };
enum { ACROSS = 4, SQUARES = 16 }; /* of a strip, of an item, at most */

/* A panel's sums on their way to where they belong. */
typedef struct storing {
    float *sums;
    int64_t panel, count, at;
    int64_t every, due; /* calls for each, until the next */
} storing;

/* What a thread works on: squares of `across` columns and some rows of a strip. */
typedef struct worker {
    attn__digits_beside beside; /* the first member */
    const attn__correlating *k;
    const attn__rows_table *rows;
    int64_t image, row, strip, across, count;
    int64_t at[SQUARES];      /* where the units of what a square's first taps meet are, */
    const int8_t *a[SQUARES]; /* and the digits */
    storing store;
    bool odd[SQUARES];
    attn__digits_state state;
} worker;

/* Where square q is in the result. */
static float *place_of(const worker *w, int64_t q, int64_t panel, int64_t *columns)
{
    const attn__correlation *c = w->k->c;
    int64_t x = (w->strip * w->k->across + q % w->across) * SIDE;
    *columns = attn__least(c->out_width - x, SIDE);
    return c->to + ((w->image * c->results + panel * SIDE) * c->out_height + w->row + q / w->across) * c->out_width + x;
}

/* Its lines are far away, and a store waits for its line: those of the next square are asked for meanwhile. */
static void store_square(worker *w)
{
    const attn__correlation *c = w->k->c;
    const float *from[SIDE];
    float *sums = w->store.sums + w->store.at * SQUARE;
    int64_t columns, ld = c->out_height * c->out_width, rows = attn__least(c->results - w->store.panel * SIDE, SIDE);
    if (c->activation != ATTN_IDENTITY)
        w->rows->run[ATTN__ROWS_ACTIVATE](&(attn__rows_args){.x = sums, .y = sums, .kind = (int)c->activation}, 0,
                                          SQUARE);
    for (int i = 0; i < SIDE; i++)
        from[i] = sums + i * SIDE;
    float *to = place_of(w, w->store.at, w->store.panel, &columns);
    c->kernel->put_turned(from, rows, columns, to, ld, false);
    if (++w->store.at == w->store.count)
        return;
    to = place_of(w, w->store.at, w->store.panel, &columns);
    for (int64_t i = 0; i < rows; i++)
        __builtin_prefetch(to + i * ld, 1, 3);
}

static void store_some(attn__digits_beside *beside)
{
    worker *w = (worker *)beside;
    if (w->store.at == w->store.count || --w->store.due > 0)
        return;
    w->store.due = w->store.every;
    store_square(w);
}

static void store_rest(worker *w)
{
    while (w->store.at < w->store.count)
        store_square(w);
}

/* Once for all panels. */
static void find_squares(worker *w)
{
    const attn__correlating *k = w->k;
    for (int64_t q = 0; q < w->count; q++) {
        int64_t row = (w->image - k->image) * k->rows + w->row + q / w->across;
        w->at[q] = (row * k->strips + w->strip) * k->blocks;
        w->a[q] = k->digits + w->at[q] * ATTN__DIGITS * k->plane + q % w->across * SIDE * k->depth;
    }
}

/* A square of its sums over one chunk, added to those before. */
static attn__digits_square square_of(worker *w, int64_t panel, int64_t q, int64_t chunk, float *sums)
{
    const attn__correlating *k = w->k;
    int64_t block = chunk / k->c->kernel_height, row = chunk % k->c->kernel_height;
    int64_t on = row * k->strips * k->blocks + block, of_weights = panel * k->chunks + chunk;
    float *to = sums + q * SQUARE;
    return (attn__digits_square){.a = w->a[q] + on * ATTN__DIGITS * k->plane,
                                 .b = k->weights + of_weights * k->steps * STEP,
                                 .row_unit = k->units + (w->at[q] + on) * SIDE,
                                 .column_unit = k->column_units + of_weights * SIDE,
                                 .fine = k->fine + (w->at[q] + on) * SIDE,
                                 .all_fine = k->panel_fine[of_weights],
                                 .before = chunk > 0 ? to
                                           : k->bias ? k->bias + panel * SIDE
                                                     : NULL,
                                 .before_ld = chunk > 0 ? SIDE : 0,
                                 .to = to,
                                 .odd = chunk + 1 == k->chunks ? &w->odd[q] : NULL};
}

/* Chunk after chunk: a square's sums are far behind when they are added to, and its places are met again
 * soon enough. */
static void sum_panel(worker *w, int64_t panel, float *sums)
{
    const attn__correlating *k = w->k;
    attn__digits_square squares[SQUARES];
    attn__digits_list list = {.squares = squares,
                              .count = w->count,
                              .steps = k->steps,
                              .a_row = k->depth,
                              .a_digit = k->plane,
                              .a_step = DEPTH,
                              .ld = SIDE};
    for (int64_t chunk = 0; chunk < k->chunks; chunk++) {
        for (int64_t q = 0; q < w->count; q++)
            squares[q] = square_of(w, panel, q, chunk, sums);
        k->c->kernel->run_list(&list, &w->state, &w->beside);
    }
    k->c->kernel->finish(&w->state);
    store_rest(w);
    w->store = (storing){.sums = sums, .panel = panel, .count = w->count};
    w->store.every = attn__most(k->chunks * k->steps, 2) - 1;
    w->store.due = w->store.every;
}

static bool is_odd(const worker *w)
{
    bool odd = false;
    for (int64_t i = 0; i < w->count; i++)
        odd |= w->odd[i];
    return odd;
}

/* An item's group of panels, and its place among the bands.  Neighbouring items, which one thread has, share what has
 * more digits, weights or images. */
static int64_t group_of(const attn__correlating *k, int64_t item, int64_t *place)
{
    int64_t places = k->images * k->bands * k->strips;
    bool by_weights = k->panels * k->chunks * k->steps * STEP > k->images * k->rows * k->line;
    *place = by_weights ? item % places : item / k->groups;
    return by_weights ? item / places : item % k->groups;
}

/* Panels of a group for the squares of a band. */
static void correlate(void *user, int64_t item, int thread)
{
    attn__correlating *k = user;
    const attn__correlation *c = k->c;
    int64_t place, group = group_of(k, item, &place);
    float _Alignas(64) sums[2][SQUARES * SQUARE];
    worker w = {.beside = {store_some}, .k = k, .rows = attn__rows_for(false, c->tape->context->isa)};
    (void)thread;
    w.strip = place % k->strips;
    w.image = k->image + place / k->strips / k->bands;
    w.row = place / k->strips % k->bands * k->height;
    w.across = attn__least(attn__pieces(c->out_width - w.strip * k->across * SIDE, SIDE), k->across);
    w.count = attn__least(k->height, c->out_height - w.row) * w.across;
    find_squares(&w);
    int64_t last = (group + 1) * k->panels / k->groups;
    c->kernel->begin();
    for (int64_t panel = group * k->panels / k->groups; panel < last; panel++) {
        sum_panel(&w, panel, sums[panel % 2]);
        if (is_odd(&w))
            atomic_store(&k->held, false);
    }
    c->kernel->end();
    store_rest(&w);
}

/* ---------------------------------------------------------------------------------------------------- whole */

/* A chunk's weights, three rows of digits, are at most some 18 KB for 16 results, so that they stay in the first cache
 * with what some squares meet of the image; of kernels wider than 6 places more.  As many chunks' numbers are gathered
 * at once as stay in the second cache. */
static attn__correlating plan(const attn__correlation *c)
{
    enum { CHUNK = 384, HALF = DEPTH / 2, ITEMS = 4, GATHERED = 256 << 10 };
    int64_t most = attn__most(CHUNK / c->kernel_width / DEPTH * DEPTH, DEPTH);
    attn__correlating k = {.c = c, .blocks = attn__pieces(c->channels, most)};
    k.depth = attn__round_up(attn__pieces(c->channels, k.blocks), HALF);
    k.depth = k.depth > DEPTH ? attn__round_up(k.depth, DEPTH) : k.depth;
    k.blocks = attn__pieces(c->channels, k.depth);
    k.chunks = k.blocks * c->kernel_height;
    k.steps = attn__pieces(c->kernel_width * k.depth, DEPTH);
    k.panels = attn__pieces(c->results, SIDE);
    k.across = attn__least(attn__pieces(c->out_width, SIDE), ACROSS);
    k.strips = attn__pieces(c->out_width, k.across * SIDE);
    k.places = k.across * SIDE + c->kernel_width - 1;
    k.plane = attn__round_up(k.places * k.depth, DEPTH);
    k.line = k.strips * k.blocks * ATTN__DIGITS * k.plane;
    k.rows = c->out_height + c->kernel_height - 1;
    k.height = SQUARES / k.across;
    k.bands = attn__pieces(c->out_height, k.height);
    k.groups = attn__pieces((int64_t)ITEMS * c->tape->context->threads, c->batch * k.bands * k.strips);
    k.groups = attn__least(k.groups, k.panels);
    k.gathered = attn__most(GATHERED / (c->kernel_width * k.depth * SIDE * (int64_t)sizeof(float)), 1);
    k.gathered = attn__least(k.gathered, c->kernel_height);
    k.rows_each = attn__most(k.rows * k.strips * c->batch / ((int64_t)ITEMS * c->tape->context->threads), 1);
    k.rows_each = attn__least(k.rows_each, k.rows);
    k.each = k.depth * attn__most(k.gathered * c->kernel_width * SIDE, attn__round_up(k.places, SIDE));
    return k;
}

static void correlate_images(attn__correlating *k, int64_t at_once)
{
    const attn__correlation *c = k->c;
    int threads = c->tape->context->threads;
    for (k->image = 0; k->image < c->batch && atomic_load(&k->held); k->image += at_once) {
        k->images = attn__least(c->batch - k->image, at_once);
        attn__parallel_items(threads, attn__correlating_items(k), attn__correlating_cut, k);
        if (atomic_load(&k->held))
            attn__parallel_items(threads, k->images * k->bands * k->strips * k->groups, correlate, k);
    }
}

/* Its memory, in one piece: sizes in bytes, each a multiple of a line. */
enum { DIGITS, WEIGHTS, UNITS, COLUMN_UNITS, NUMBERS, BIAS, SPREAD, FINE, PANEL_FINE, ARRAYS };

static size_t sizes_of(const attn__correlating *k, int64_t at_once, size_t size[ARRAYS])
{
    int64_t units = at_once * k->rows * k->strips * k->blocks * SIDE, columns = k->panels * k->chunks * SIDE;
    int64_t bytes[ARRAYS] = {[DIGITS] = at_once * k->rows * k->line + DEPTH,
                             [WEIGHTS] = k->panels * k->chunks * k->steps * STEP,
                             [UNITS] = units * (int64_t)sizeof(float),
                             [COLUMN_UNITS] = columns * (int64_t)sizeof(float),
                             [NUMBERS] = k->c->tape->context->threads * k->each * (int64_t)sizeof(float),
                             [BIAS] = k->panels * SIDE * (int64_t)sizeof(float),
                             [SPREAD] = 2 * k->c->channels * (int64_t)sizeof(float),
                             [FINE] = units,
                             [PANEL_FINE] = columns};
    size_t all = 0;
    for (int i = 0; i < ARRAYS; i++)
        all += size[i] = (size_t)attn__round_up(bytes[i], DEPTH);
    return all;
}

static void lay_out(attn__correlating *k, char *data, const size_t size[ARRAYS])
{
    void *at[ARRAYS];
    for (int i = 0; i < ARRAYS; data += size[i++])
        at[i] = data;
    k->digits = at[DIGITS];
    k->weights = at[WEIGHTS];
    k->units = at[UNITS];
    k->column_units = at[COLUMN_UNITS];
    k->numbers = at[NUMBERS];
    k->spread_x = at[SPREAD];
    k->spread_w = k->spread_x + k->c->channels;
    k->fine = at[FINE];
    k->panel_fine = at[PANEL_FINE];
    if (!attn__correlating_spread(k->c, k->spread_x, k->spread_w))
        k->spread_x = k->spread_w = NULL;
    if (k->c->bias) {
        k->bias = memset(at[BIAS], 0, size[BIAS]);
        memcpy(k->bias, k->c->bias, (size_t)k->c->results * sizeof(float));
    }
}

/* Three products of digits, each up to 2^14, for each place of a chunk: within 32 bits. */
static bool chunks_fit(const attn__correlating *k)
{
    enum { LONGEST = 32 << 10 };
    return k->steps * DEPTH <= LONGEST;
}

bool attn__correlate_by_digits(const attn__correlation *c)
{
    enum { AT_ONCE = 2 << 20 };
    attn__correlating k = plan(c);
    if (!chunks_fit(&k))
        return false;
    size_t size[ARRAYS];
    int64_t at_once = attn__least(attn__most(AT_ONCE / (k.rows * k.line), 1), c->batch);
    attn__hold hold = attn__scratch(c->tape, sizes_of(&k, at_once, size));
    if (!hold.data)
        return false;
    lay_out(&k, hold.data, size);
    atomic_init(&k.held, true);
    correlate_images(&k, at_once);
    attn__scratch_release(hold);
    return atomic_load(&k.held);
}
