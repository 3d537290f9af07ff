/* SPDX-License-Identifier: MIT
 * The operands of gemm_digits.h as tiles of digits. */
#include "base/parallel.h"
#include "tensor/gemm_digits.h"
#include "tensor/gemm_digits_work.h"

#include <math.h>
#include <string.h>

/* LINE: bytes; columns that one thread packs at a time, of k that it looks at; rows that are asked for. */
enum { LINE = 64, PACKED_AT_ONCE = 128, AHEAD = 12 };

attn__digits_chunks attn__gemm_digits_chunks(int64_t k)
{
    int64_t each = attn__round_up(attn__pieces(k, attn__pieces(k, ATTN__DIGITS_CHUNK)), DEPTH);
    return (attn__digits_chunks){k, each, attn__pieces(k, each)};
}

size_t attn__gemm_digits_lay_out_b(attn__digits_product *p, int64_t n, int64_t count, char *data)
{
    int64_t k = attn__round_up(p->chunks.k, SIDE), columns = attn__round_up(n, SIDE);
    int64_t depth = attn__least(count * p->chunks.each, p->chunks.k);
    int64_t panel = attn__pieces(depth, DEPTH) * ATTN__DIGITS_STEP;
    size_t tiles = (size_t)(columns / SIDE * panel), units = (size_t)(count * columns) * sizeof(float);
    if (data) {
        float *at = (float *)(void *)(data + tiles);
        p->b = (attn__digits_b){.tiles = (int8_t *)data, .panel = panel, .columns = columns, .units = at};
        p->b.spread_a = at + count * columns;
        p->b.spread_b = p->b.spread_a + k;
        p->b.fine = (bool *)(void *)(p->b.spread_b + k);
    }
    return tiles + units + 2 * (size_t)k * sizeof(float) + (size_t)(count * columns / SIDE);
}

/* -------------------------------------------------------------------------------------------------- spread */

/* A row that is far away is asked for, a line every `apart` numbers. */
static void fetch(const float *x, int64_t n, int64_t apart)
{
    for (int64_t i = 0; i < n; i += apart)
        __builtin_prefetch(x + i, 0, 3);
}

/* What the numbers of B have as exponents for some of k, on average and at most: of as many as say it, evenly taken. */
static void look_at_b(void *user, int64_t item, int thread)
{
    enum { TAKEN = 64 };
    const attn__digits_product *p = user;
    const attn__gemm_args *g = p->g;
    const float *b = g->b;
    int64_t begin = item * PACKED_AT_ONCE, end = attn__least(begin + PACKED_AT_ONCE, g->k);
    int64_t every = attn__pieces(g->n, TAKEN), apart = attn__round_up(attn__pieces(g->n, TAKEN / SIDE), SIDE);
    float sum[PACKED_AT_ONCE] = {0}, count[PACKED_AT_ONCE] = {0}, most[PACKED_AT_ONCE];
    (void)thread;
    for (int i = 0; i < PACKED_AT_ONCE; i++)
        most[i] = -INFINITY;
    for (int64_t i = 0; i < g->n && g->transpose_b; i += every) {
        fetch(b + attn__least(i + AHEAD * every, g->n - 1) * g->ldb + begin, end - begin, SIDE);
        p->kernel->exponents(b + i * g->ldb + begin, end - begin, sum, count, most);
    }
    for (int64_t k = begin, at = 0; k < end && !g->transpose_b; k++, at++) {
        fetch(b + attn__least(k + AHEAD, end - 1) * g->ldb, g->n, apart);
        p->kernel->exponents_of_row(b + k * g->ldb, g->n, apart, sum + at, count + at, most + at);
    }
    for (int64_t k = begin; k < end; k++) {
        bool some = count[k - begin] > 0;
        p->b.spread_a[k] = some ? sum[k - begin] / count[k - begin] : NAN;
        p->b.spread_b[k] = some ? most[k - begin] : NAN;
    }
}

/* Powers of 16, so that numbers of one size stay as they are.  Both the mean and the largest must be below: a few columns
 * have some small numbers for one k by chance, and what is large there would outgrow all others; and one large number
 * must not spread all the others. */
static float spread_of(float below)
{
    enum { EACH = 4, MOST = 8 };
    return below < EACH ? 1.0f : ldexpf(1.0f, (int)fminf(below / EACH, MOST) * EACH);
}

bool attn__gemm_digits_spread_of(int64_t n, float *mean, float *most)
{
    float top = -INFINITY, top_most = -INFINITY;
    bool some = false;
    for (int64_t k = 0; k < n; k++) {
        top = fmaxf(top, mean[k]); /* NaN, where there is none, changes nothing */
        top_most = fmaxf(top_most, most[k]);
    }
    for (int64_t k = 0; k < n; k++) {
        float spread = isnan(mean[k]) ? 1.0f : spread_of(fminf(top - mean[k], top_most - most[k]));
        some = some || spread != 1.0f;
        most[k] = spread;
        mean[k] = 1.0f / spread;
    }
    return some;
}

void attn__gemm_digits_spread(int threads, const attn__gemm_args *g, attn__digits_product *p)
{
    p->g = g;
    attn__parallel_items(threads, attn__pieces(g->k, PACKED_AT_ONCE), look_at_b, p);
    p->b.spread = attn__gemm_digits_spread_of(g->k, p->b.spread_a, p->b.spread_b);
}

/* ------------------------------------------------------------------------------------------------------- B */

/* What belongs to columns [at, at + columns) of op(B) within a chunk. */
typedef struct place {
    int64_t k, depth;
    const float *spread;
    float *units;
    int8_t *tiles; /* of the first panel */
    bool *fine;
} place;

static place place_of_b(const attn__digits_product *p, int64_t at, int64_t c)
{
    int64_t k = attn__gemm_digits_k(&p->chunks, c), first = (c - p->begin) * p->b.columns + at;
    return (place){k,
                   attn__gemm_digits_k(&p->chunks, c + 1) - k,
                   p->b.spread ? p->b.spread_b + k : NULL,
                   p->b.units + first,
                   attn__gemm_digits_tiles_of_b(p, at / SIDE, c),
                   p->b.fine + first / SIDE};
}

/* False if some number has none; those that are not there count nothing.  A flag for `each` of them. */
static bool store_units(const attn__digits_scale *scale, int64_t n, int64_t each, float *units, bool *fine)
{
    bool finite = true;
    for (int64_t i = 0; i < attn__round_up(n, SIDE); i++) {
        units[i] = i < n ? scale[i].unit : 0.0f;
        fine[i / each] = (i % each > 0 && fine[i / each]) || (i < n && scale[i].fine);
        finite = finite && !isnan(units[i]);
    }
    return finite;
}

/* What will be written, and is far away. */
static void fetch_to_write(int8_t *data, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += LINE)
        __builtin_prefetch(data + i, 1, 3);
}

/* Up to 16 rows along k become one panel; those that are not there have any numbers.  Weights are far away, and their
 * rows too short for the machine to guess the next one: the next ones are asked for meanwhile, and, at `next`, if that is
 * not NULL, the tiles of the panel after this one. */
static void cut_panel(const attn__digits_kernel *kernel, const float *x, int64_t ld, int64_t rows, const place *to,
                      attn__digits_scale *scale, int8_t *tiles, int8_t *next)
{
    enum { NEXT = 2 };
    int64_t bytes = attn__gemm_digits_bytes(SIDE, to->depth);
    for (int64_t i = 0; i < SIDE; i++) {
        const float *row = x + (i < rows ? i : 0) * ld;
        if (i + NEXT < rows)
            fetch(row + NEXT * ld, to->depth, SIDE);
        if (next)
            fetch_to_write(next + i * bytes / SIDE, bytes / SIDE);
        if (i < rows)
            scale[i] = kernel->scale(row, to->spread, to->depth);
        kernel->cut(row, to->spread, scale[i < rows ? i : 0].cut, to->depth, tiles + i * DEPTH);
    }
    kernel->turn(tiles, attn__pieces(to->depth, DEPTH) * ATTN__DIGITS);
}

static bool pack_rows_of_b(const attn__digits_product *p, int64_t at, int64_t columns, int64_t c, int thread)
{
    (void)thread;
    place to = place_of_b(p, at, c);
    attn__digits_scale scale[PACKED_AT_ONCE];
    const float *x = (const float *)p->g->b + at * p->g->ldb + to.k;
    for (int64_t i = 0; i < columns; i += SIDE)
        cut_panel(p->kernel, x + i * p->g->ldb, p->g->ldb, p->g->n - at - i, &to, scale + i,
                  to.tiles + i / SIDE * p->b.panel, i + SIDE < columns ? to.tiles + (i / SIDE + 1) * p->b.panel : NULL);
    return store_units(scale, columns, SIDE, to.units, to.fine);
}

/* Adjacent columns of memory; turned, they are rows of A.  They are copied as they are looked at: rows lie so far apart
 * that lines push each other out of the second cache. */
static bool cut_columns(const attn__digits_product *p, const attn__digits_columns *from, int8_t *tiles, int64_t panel,
                        float *units, bool *fine, bool turn)
{
    enum { COPIED = ATTN__DIGITS_COPIED };
    attn__digits_scale scale[PACKED_AT_ONCE];
    for (int64_t i = 0; i < from->n; i += SIDE, tiles += panel) {
        attn__digits_columns all = *from, some = {.x = from->copy + i % COPIED, .ld = COPIED, .k = from->k};
        all.x += i;
        all.n = attn__least(from->n - i, COPIED);
        some.n = attn__least(from->n - i, SIDE);
        if (i % COPIED == 0)
            p->kernel->scale_columns(&all, scale + i);
        p->kernel->cut_columns(&some, scale + i, tiles);
        if (turn)
            p->kernel->turn(tiles, attn__pieces(from->k, DEPTH) * ATTN__DIGITS);
    }
    return store_units(scale, from->n, turn ? 1 : SIDE, units, fine);
}

static float *copy_of(const attn__digits_product *p, int thread)
{
    return p->copies + (int64_t)thread * ATTN__DIGITS_CHUNK * ATTN__DIGITS_COPIED;
}

static bool pack_columns_of_b(const attn__digits_product *p, int64_t at, int64_t columns, int64_t c, int thread)
{
    place to = place_of_b(p, at, c);
    attn__digits_columns from = {
        (const float *)p->g->b + to.k * p->g->ldb + at, p->g->ldb, to.depth, columns, to.spread, copy_of(p, thread)};
    return cut_columns(p, &from, to.tiles, p->b.panel, to.units, to.fine, false);
}

static void pack_item(void *user, int64_t item, int thread)
{
    const attn__digits_product *p = user;
    int64_t at = item * PACKED_AT_ONCE, columns = attn__least(p->g->n - at, PACKED_AT_ONCE);
    bool finite = true;
    for (int64_t c = p->begin; c < p->end; c++)
        finite = (p->g->transpose_b ? pack_rows_of_b : pack_columns_of_b)(p, at, columns, c, thread) && finite;
    p->odd_b[item] = !finite;
}

int64_t attn__gemm_digits_pieces_of_b(int64_t n)
{
    return attn__pieces(n, PACKED_AT_ONCE);
}

bool attn__gemm_digits_pack_b(int threads, attn__digits_product *p)
{
    int64_t items = attn__gemm_digits_pieces_of_b(p->g->n);
    attn__parallel_items(threads, items, pack_item, p);
    for (int64_t i = 0; i < items; i++)
        if (p->odd_b[i])
            return false;
    return true;
}

/* ------------------------------------------------------------------------------------------------------- A */

void attn__gemm_digits_turn_a(const attn__digits_product *p, int64_t at, int64_t height, int64_t c, int thread,
                              int8_t *tiles, float *units, bool *fine)
{
    int64_t k = attn__gemm_digits_k(&p->chunks, c), depth = attn__gemm_digits_k(&p->chunks, c + 1) - k;
    int64_t panel = attn__gemm_digits_bytes(SIDE, depth);
    for (int64_t i = 0; i < height; i += PACKED_AT_ONCE) {
        attn__digits_columns from = {(const float *)p->g->a + k * p->g->lda + at + i,
                                     p->g->lda,
                                     depth,
                                     attn__least(height - i, PACKED_AT_ONCE),
                                     p->b.spread ? p->b.spread_a + k : NULL,
                                     copy_of(p, thread)};
        cut_columns(p, &from, tiles + i / SIDE * panel, panel, units + i, fine + i, true);
    }
}

/* -------------------------------------------------------------------------------------------------- packed */

/* A product of which only B is known. */
static attn__digits_product product_of(attn_context *context, const attn__gemm_args *g)
{
    attn__digits_product p = {.g = g, .kernel = attn__digits_for(context->isa)};
    p.chunks = attn__gemm_digits_chunks(g->k);
    p.end = p.chunks.count;
    return p;
}

size_t attn__gemm_digits_packed_bytes(attn_context *context, const attn__gemm_args *g)
{
    attn__digits_product p = product_of(context, g);
    return attn__gemm_digits_lay_out_b(&p, g->n, p.end, NULL) + (size_t)attn__gemm_digits_pieces_of_b(g->n);
}

size_t attn__gemm_digits_copies_bytes(const attn_context *context)
{
    return (size_t)context->threads * ATTN__DIGITS_CHUNK * ATTN__DIGITS_COPIED * sizeof(float);
}

bool attn__gemm_digits_pack_to(attn_context *context, const attn__gemm_args *g, float *copies, char *data, bool *spread)
{
    attn__digits_product p = product_of(context, g);
    p.copies = copies;
    p.odd_b = (bool *)data + attn__gemm_digits_lay_out_b(&p, g->n, p.end, data);
    attn__gemm_digits_spread(context->threads, g, &p);
    *spread = p.b.spread;
    return attn__gemm_digits_pack_b(context->threads, &p);
}

attn_status attn__gemm_digits_pack(attn_tape *tape, const float *b, int64_t ldb, int64_t n, int64_t k,
                                   attn__packed *packed)
{
    attn__gemm_args args = {.dtype = ATTN_F32, .transpose_b = true, .n = n, .k = k, .b = b, .ldb = ldb};
    *packed = (attn__packed){0};
    if (!attn__digits_for(tape->context->isa) || n == 0 || k < ATTN__DIGITS_LEAST)
        return ATTN_UNSUPPORTED;
    attn__hold hold = attn__scratch(tape, attn__gemm_digits_packed_bytes(tape->context, &args));
    if (!hold.data)
        return ATTN_MEMORY;
    *packed = (attn__packed){ATTN_F32, n, k, hold, .digits = true};
    if (attn__gemm_digits_pack_to(tape->context, &args, NULL, hold.data, &packed->spread))
        return ATTN_OK;
    attn__gemm_unpack(packed);
    return ATTN_UNSUPPORTED;
}
