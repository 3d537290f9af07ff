/* SPDX-License-Identifier: MIT
 *
 * blocked_wide.h - the matrix products of blocked.c in f32, for heads of thousands of channels. Tied rows of an
 * alignment have such heads, because each row adds channels.
 *
 * The two products take much longer than the softmax.  The weights of a block of queries and a block of keys stay in
 * the cache, and channels are processed in chunks. Chunks are packed into panels directly from the caller's arrays, so
 * that strides and bf16 need no other code:
 *
 *     S[queries,keys] += Q[queries,chunk] K[keys,chunk]^T       for each chunk of the channels
 *     O[queries,chunk] = P[queries,keys] V[keys,chunk]          for each chunk of the values
 *
 * The gradients are similar products.
 *
 * On AMX, an f32 number is the sum of three bf16 terms (kernels/bf16x3).  While AMX multiplies a chunk, the vector
 * units pack the next chunk, prefetch the chunk after that, and store the sums of the previous chunk
 * (kernels/bf16x3/bf16x3_feed.h).
 */
#ifndef ATTN_ATTEND_BLOCKED_WIDE_H
#define ATTN_ATTEND_BLOCKED_WIDE_H

#include "attend/block/finite.h"
#include "attend/block/prefetch.h"
#include "attend/block/rows.h"
#include "attend/problem/canonical.h"
#include "base/arena.h"
#include "base/integers.h"
#include "kernels/additive/additive.h"
#include "kernels/bf16x3/bf16x3_feed.h"
#include "kernels/gemm_tile/gemm_tile.h"
#include "kernels/online_softmax/online_softmax.h"
#include "kernels/softmax_backward/softmax_backward.h"

#include <math.h>
#include <string.h>

enum {
    WIDE_CHUNK = 64,
    WIDE_AMX_CHUNK = 128, /* channels of a bf16 chunk */
    WIDE_LINE = 64,
    SIDE = ATTN__BF16X3_SIDE,
    DEPTH = ATTN__BF16X3_DEPTH,
    TERMS = ATTN__BF16X3_F32,
    PORTIONS = 2 * TERMS /* portions of work per AMX square and step along k */
};
_Static_assert((int)ATTN__FEED_COLUMNS == (int)WIDE_CHUNK, "what is left to the vector units has panels of a chunk");

typedef struct wide_kernels {
    const attn__gemm_tile_kernel *tile;
    const attn__online_softmax_kernel *lanes;
    const attn__softmax_backward_kernel *store;
    const attn__additive_kernel *channels;
    const attn__bf16x3_kernel *amx; /* kernel for products on AMX; NULL: vectors */
    int terms;                      /* bf16 terms per number on AMX: 1 for bf16, TERMS for f32; 0: no AMX */
    int64_t chunk;
} wide_kernels;

/* The layout of an operand's channels. Each run of adjacent channels is copied at once. */
typedef struct wide_operand {
    const attn__group *channels; /* NULL if all channels are adjacent */
    size_t stride;               /* stride field of the operand, see ATTN__STRIDE */
    attn_dtype dtype;
    int64_t run; /* number of adjacent channels of a run; 1 if none are adjacent */
} wide_operand;

/* Rows of an operand: row i begins at base + at[i]. */
typedef struct wide_rows {
    wide_operand operand;
    const void *base;
    const int64_t *at;
    int64_t rows;
} wide_rows;

/* Channels [first, first + n) of some rows. */
typedef struct wide_chunk {
    wide_rows of;
    int64_t first, n;
} wide_chunk;

/* The memory of one thread for AMX. */
typedef struct wide_stream {
    uint16_t *tiles[2][2];     /* [current chunk or next chunk][operand] */
    attn__bf16x3_side weights; /* operand A, packed weights: [rows][depth] */
    float *sums[2];            /* [rows][chunk] */
    attn__bf16x3_feed feed;
} wide_stream;

typedef struct wide {
    const wide_kernels *kernels;
    int64_t ld;    /* row stride of scores and weights in floats */
    float *in;     /* [rows][chunk]: queries, or the rows by which weights are multiplied */
    float *across; /* [chunk][ld]: transposed keys */
    float *out;    /* [rows][chunk] */
    float *ones;   /* [rows] */
    bool met;      /* a product has met NaN or infinity */
    float *dots;   /* on AMX: partial sums of wide_scores.dots, [rows][16] */
    int64_t *table;
    attn__prefetch prefetch;
    wide_stream stream;
} wide;

/* ------------------------------------------------------------------------------------------------ chunks */

static wide_operand wide_operand_of(const attn__canonical *canonical, attn__operand op)
{
    const attn__group *channels = attn__channels_of(canonical, op);
    wide_operand x = {channels, attn__stride_of(op), canonical->problem.dtype, 1};
    for (int a = channels->n - 1; a >= 0; a--) {
        const attn_dim *dim = &channels->axis[a].dim;
        if (dim->n > 1 && attn__stride(dim, op) != x.run)
            break;
        x.run *= dim->n;
    }
    return x;
}

static const void *wide_at(const wide_rows *rows, int64_t channel)
{
    const wide_operand *x = &rows->operand;
    int64_t offset = x->channels ? attn__offsets_one(x->channels, x->stride, channel) : channel;
    return (const char *)rows->base + offset * (int64_t)attn_dtype_size(x->dtype);
}

static const void *wide_chunk_at(const wide_chunk *x, int64_t channel)
{
    return wide_at(&x->of, x->first + channel);
}

/* Returns the length of the run of adjacent channels that begins at channel `c` of the chunk. */
static int64_t wide_run(const wide_chunk *x, int64_t c)
{
    int64_t run = x->of.operand.run;
    return attn__min(run - (x->first + c) % run, x->n - c);
}

/* Returns the offsets of the chunk's channels, or NULL if the chunk consists of runs of adjacent channels. */
static const int64_t *wide_table(const wide *w, const wide_chunk *x)
{
    if (x->of.operand.run > 1 || x->n == 1)
        return NULL;
    attn__offsets_fill(x->of.operand.channels, x->of.operand.stride, x->first, x->n, w->table);
    return w->table;
}

/* Copies a chunk row by row. Pads rows with zeros to whole vectors. Returns false if any number is infinite or NaN. */
static bool wide_copy(const wide *w, const wide_chunk *x, float *to)
{
    const wide_rows *of = &x->of;
    const attn__online_softmax_kernel *lanes = w->kernels->lanes;
    attn_dtype dtype = of->operand.dtype;
    const int64_t *table = wide_table(w, x);
    int64_t ld = w->kernels->chunk, padded = attn__min(ld, attn__round_up(x->n, lanes->lanes));
    bool finite = true;
    for (int64_t r = 0; r < of->rows && padded > x->n; r++)
        memset(to + r * ld + x->n, 0, (size_t)(padded - x->n) * sizeof(float));
    if (table)
        return lanes->copy(of->base, dtype, of->at, table, of->rows, x->n, to, ld);
    for (int64_t c = 0, run; c < x->n; c += run) {
        run = wide_run(x, c);
        finite = lanes->copy(wide_chunk_at(x, c), dtype, of->at, NULL, of->rows, run, to + c, ld) && finite;
    }
    return finite;
}

/* Writes the transpose of the chunk times `factor` to w->across. Row c of w->across has channel c. */
static void wide_transpose(const wide *w, const wide_chunk *x, float factor)
{
    const wide_rows *of = &x->of;
    attn__lane_view view = {(void *)(uintptr_t)of->base, of->operand.dtype, of->at, wide_table(w, x), x->n, of->rows};
    if (view.row_offset) {
        w->kernels->lanes->gather(&view, w->across, w->ld, factor);
        return;
    }
    for (int64_t c = 0; c < x->n; c += view.rows) {
        view.rows = wide_run(x, c);
        view.base = (void *)(uintptr_t)wide_chunk_at(x, c);
        w->kernels->lanes->gather(&view, w->across + c * w->ld, w->ld, factor);
    }
}

/* Stores chunk = (was ? was[row] * chunk : 0) + factor[row] * w->out. In bf16, `was` must be NULL or all ones. */
static void wide_store(const wide *w, const wide_chunk *x, const float *factor, const float *was)
{
    const attn__softmax_backward_kernel *store = w->kernels->store;
    for (int64_t c = 0, run; c < x->n; c += run) {
        void *base = (void *)(uintptr_t)wide_chunk_at(x, c);
        const float *from = w->out + c;
        run = wide_run(x, c);
        for (int64_t r = 0; r < x->of.rows; r++, from += w->kernels->chunk) {
            if (x->of.operand.dtype == ATTN_BF16) {
                store->store_bf16((uint16_t *)base + x->of.at[r], from, run, factor[r], was != NULL);
                continue;
            }
            float *to = (float *)base + x->of.at[r];
            if (was && was[r] != 1.0f)
                w->kernels->channels->scale(was[r], to, run);
            store->store(to, from, run, factor[r], was != NULL);
        }
    }
}

static void wide_clear(const wide *w, const wide_rows *rows, int64_t channels)
{
    int64_t chunk = w->kernels->chunk;
    memset(w->out, 0, (size_t)(rows->rows * chunk) * sizeof(float));
    for (int64_t first = 0; first < channels; first += chunk)
        wide_store(w, &(wide_chunk){*rows, first, attn__min(channels - first, chunk)}, w->ones, NULL);
}

/* Adds the chunk that begins at channel `first` to the prefetch list, because hardware does not prefetch across pages.
 * Short runs of channels are not added. */
static void wide_prefetch(wide *w, const wide_rows *rows, int64_t first, int64_t channels)
{
    wide_chunk x = {*rows, first, attn__min(channels - first, w->kernels->chunk)};
    int64_t size = (int64_t)attn_dtype_size(x.of.operand.dtype);
    if (x.n <= 0 || w->prefetch.streams >= ATTN__PREFETCH_STREAMS)
        return;
    int64_t run = wide_run(&x, 0);
    const char *start = wide_chunk_at(&x, 0);
    if (run * size >= WIDE_LINE)
        attn__prefetch_add_runs(&w->prefetch, start, size, x.of.at, x.of.rows, x.n / run,
                                x.n > run ? (const char *)wide_chunk_at(&x, run) - start : 0, run * size);
}

/* Runs tile->run in portions that fit the L1 cache. Prefetches a part of the list after each register tile. */
static void wide_multiply(wide *w, const attn__gemm_tile_args *whole)
{
    enum {
        STRIP = 4,  /* vectors of a strip of columns */
        LONG = 128, /* summands per portion; the rows of B of a portion stay in the L1 cache */
        ROWS = 6    /* minimum of rows per register tile of a strip */
    };
    const attn__gemm_tile_kernel *tile = w->kernels->tile;
    int64_t strip = STRIP * tile->lanes;
    attn__gemm_tile_args part = *whole;
    attn__prefetch_divide(&w->prefetch, attn__max(attn__ceil_div(whole->m, ROWS) * attn__ceil_div(whole->n, strip) *
                                                      attn__ceil_div(whole->k, LONG),
                                                  1));
    part.hook = (attn__tile_hook){attn__prefetch_portion, &w->prefetch};
    for (int64_t n = 0; n < whole->n; n += strip) {
        part.n = attn__min(whole->n - n, strip);
        for (int64_t k = 0; k < whole->k; k += LONG) {
            part.k = attn__min(whole->k - k, LONG);
            part.b = whole->b + k * whole->ldb + n;
            part.accumulate = whole->accumulate || k > 0;
            part.a = whole->a + k * whole->ak;
            part.c = whole->c + n;
            tile->run(&part);
        }
    }
}

/* ------------------------------------------------------------------------------------------- AMX, f32 */

/* Reports whether AMX is faster for f32. Measured: 64 rows gain an eighth, 72 rows gain 3 to 10 %, but 65 rows lose 4
 * %, because they fill AMX squares badly. */
static bool wide_stream_pays(const attn__canonical *canonical)
{
    enum { LEAST = 64, SQUARE = 2 * SIDE };
    int64_t queries = canonical->query.size, keys = canonical->key.size;
    double whole = (double)attn__round_up(queries, SQUARE) * (double)attn__round_up(keys, SQUARE);
    return attn__bf16x3_for(canonical->isa) && attn__min(queries, keys) >= LEAST &&
           whole <= 1.8 * (double)queries * (double)keys;
}

/* Reports whether each run of channels is a multiple of an AMX step. */
static bool wide_streams(const wide_operand *x)
{
    return x->dtype == ATTN_F32 && x->channels->size % DEPTH == 0 && x->run % DEPTH == 0;
}

/* Finds the address of each AMX step of the chunk that begins at channel `first`. Returns the number of steps. */
static int64_t stream_steps(const wide_rows *rows, int64_t first, int64_t channels, const float **at)
{
    int64_t steps = attn__min(channels - first, WIDE_CHUNK) / DEPTH;
    for (int64_t i = 0; i < steps; i++)
        at[i] = wide_at(rows, first + i * DEPTH);
    return steps;
}

static attn__feed_side stream_side(const wide_rows *rows, attn__feed_kind kind, int64_t first, int64_t channels,
                                   uint16_t *to)
{
    attn__feed_side s = {.kind = kind, .row_at = rows->at, .rows = rows->rows, .factor = 1.0f};
    s.steps = stream_steps(rows, first, channels, s.at);
    s.to = attn__bf16x3_packed(to, kind == ATTN__FEED_PAIRS ? attn__ceil_div(rows->rows, DEPTH) : s.steps, TERMS);
    return s;
}

/* Computes c = a b for m rows and n columns, or adds to c. For f32, packing runs between products (w->stream.feed). */
static void tiles_multiply(wide *w, int64_t m, int64_t n, attn__bf16x3_side a, attn__bf16x3_side b, int64_t steps,
                           float *c, int64_t ldc, bool accumulate)
{
    const wide_kernels *k = w->kernels;
    attn__bf16x3_args args = {.m = attn__ceil_div(m, SIDE),
                              .n = attn__ceil_div(n, SIDE),
                              .k = steps,
                              .parts = k->terms,
                              .a = a,
                              .b = b,
                              .c = c,
                              .ldc = ldc,
                              .accumulate = accumulate};
    k->amx->run_interleaved(&args, k->terms == TERMS ? &w->stream.feed.interleaved : NULL);
}

/* ------------------------------------------------------------------------------------------------- scores */

/* Arguments of out[i, j] = factor * sum over channels of a * b, for row i of `a` and row j of `b`. */
typedef struct wide_scores {
    wide_rows a, b, with; /* if with.rows is not 0, adds the product of row i of `a` and `with` to dots[i] */
    int64_t channels;
    float factor, *out;
    double *dots;
} wide_scores;

static void score_chunk(wide *w, const wide_scores *s, int64_t first, int64_t n)
{
    wide_copy(w, &(wide_chunk){s->a, first, n}, w->in);
    wide_transpose(w, &(wide_chunk){s->b, first, n}, s->factor);
    attn__prefetch_clear(&w->prefetch);
    wide_prefetch(w, &s->a, first + n, s->channels);
    wide_prefetch(w, &s->b, first + n, s->channels);
    wide_multiply(w, &(attn__gemm_tile_args){.m = s->a.rows,
                                             .n = attn__round_up(s->b.rows, w->kernels->tile->lanes),
                                             .k = n,
                                             .a = w->in,
                                             .am = w->kernels->chunk,
                                             .ak = 1,
                                             .b = w->across,
                                             .ldb = w->ld,
                                             .c = s->out,
                                             .ldc = w->ld,
                                             .accumulate = first > 0});
}

/* Describes the two operands of the chunk that begins at channel `first`. Returns 0 after the last chunk. */
static int stream_score_sides(const wide *w, const wide_scores *s, int64_t first, attn__feed_side *side)
{
    if (first >= s->channels)
        return 0;
    int into = (int)(first / WIDE_CHUNK % 2);
    side[0] = stream_side(&s->a, ATTN__FEED_ROWS, first, s->channels, w->stream.tiles[into][0]);
    side[1] = stream_side(&s->b, ATTN__FEED_TRANSPOSED, first, s->channels, w->stream.tiles[into][1]);
    side[1].factor = s->factor;
    if (s->with.rows) {
        stream_steps(&s->with, first, s->channels, side[0].with);
        side[0].with_at = s->with.at;
        side[0].dots = w->dots;
    }
    return 2;
}

static void stream_feed_scores(wide *w, const wide_scores *s, int64_t first, int64_t portions)
{
    attn__bf16x3_feed *feed = &w->stream.feed;
    feed->sides = stream_score_sides(w, s, first, feed->side);
    feed->nexts = stream_score_sides(w, s, first + WIDE_CHUNK, feed->next);
    feed->drain.rows = 0;
    attn__bf16x3_feed_begin(feed, portions);
}

/* Adds the product of a chunk to the scores. The chunk must be packed into tiles. */
static void tiles_score_chunk(wide *w, const wide_scores *s, int64_t first, int64_t steps, int at)
{
    attn__bf16x3_side a = attn__bf16x3_packed(w->stream.tiles[at][0], steps, w->kernels->terms);
    attn__bf16x3_side b = attn__bf16x3_packed(w->stream.tiles[at][1], steps, w->kernels->terms);
    tiles_multiply(w, s->a.rows, s->b.rows, a, b, steps, s->out, w->ld, first > 0);
}

static void stream_scores(wide *w, const wide_scores *s)
{
    int64_t squares = attn__ceil_div(s->a.rows, 2 * SIDE) * attn__ceil_div(attn__ceil_div(s->b.rows, SIDE), 2);
    if (s->with.rows)
        memset(w->dots, 0, (size_t)(s->a.rows * SIDE) * sizeof(float));
    stream_feed_scores(w, s, 0, 0);
    bool finite = attn__bf16x3_feed_end(&w->stream.feed);
    for (int64_t first = 0; first < s->channels; first += WIDE_CHUNK) {
        int64_t n = attn__min(s->channels - first, WIDE_CHUNK);
        stream_feed_scores(w, s, first + WIDE_CHUNK, squares * (n / DEPTH) * PORTIONS);
        if (finite)
            tiles_score_chunk(w, s, first, n / DEPTH, (int)(first / WIDE_CHUNK % 2));
        bool next = attn__bf16x3_feed_end(&w->stream.feed);
        if (!finite)
            score_chunk(w, s, first, n);
        finite = next;
    }
    for (int64_t i = 0; i < s->with.rows * SIDE; i++)
        s->dots[i / SIDE] += (double)w->dots[i];
}

/* ---------------------------------------------------------------------------------------------- AMX, bf16 */

/* Packs a chunk of bf16 into tiles. Adjacent channels are read in place, and others are copied to w->in first. Returns
 * false if any number is infinite or NaN. */
static bool bf16_split(wide *w, const wide_chunk *x, bool pairs, attn__bf16x3_side to)
{
    const attn__bf16x3_kernel *amx = w->kernels->amx;
    bool (*split)(const attn__bf16x3_rows *, const attn__bf16x3_side *) = pairs ? amx->split_pairs : amx->split_rows;
    int64_t unit = pairs ? SIDE : DEPTH, next = pairs ? to.block : to.step;
    attn__bf16x3_rows rows = {
        .dtype = x->of.operand.dtype, .row_at = x->of.at, .rows = x->of.rows, .factor = 1.0f, .parts = 1};
    bool finite = true;
    if (wide_run(x, 0) != x->n && (x->of.operand.run % unit != 0 || x->first % unit != 0)) {
        wide_copy(w, x, w->in);
        rows.data = w->in;
        rows.dtype = ATTN_F32;
        rows.row_at = NULL;
        rows.ld = w->kernels->chunk;
        rows.columns = x->n;
        return split(&rows, &to);
    }
    uint16_t *start = to.data;
    for (int64_t c = 0; c < x->n; c += rows.columns) {
        rows.columns = wide_run(x, c);
        rows.data = wide_chunk_at(x, c);
        to.data = start + c / unit * next;
        finite = split(&rows, &to) && finite;
    }
    return finite;
}

static void bf16_score_chunk(wide *w, const wide_scores *s, int64_t first, int64_t n)
{
    int64_t steps = attn__ceil_div(n, DEPTH);
    attn__bf16x3_side a = attn__bf16x3_packed(w->stream.tiles[0][0], steps, 1),
                      b = attn__bf16x3_packed(w->stream.tiles[0][1], steps, 1);
    bf16_split(w, &(wide_chunk){s->a, first, n}, false, a);
    bf16_split(w, &(wide_chunk){s->b, first, n}, false, b);
    w->kernels->amx->transpose(b.data, attn__ceil_div(s->b.rows, SIDE) * b.block / ATTN__BF16X3_TILE);
    tiles_score_chunk(w, s, first, steps, 0);
}

/* ------------------------------------------------------------------------------------------------- scores */

static void wide_score(wide *w, const wide_scores *s)
{
    const wide_kernels *kernels = w->kernels;
    if (kernels->terms == TERMS) {
        stream_scores(w, s);
        return;
    }
    for (int64_t first = 0, n; first < s->channels; first += n) {
        n = attn__min(s->channels - first, kernels->chunk);
        if (kernels->amx) {
            bf16_score_chunk(w, s, first, n);
            continue;
        }
        score_chunk(w, s, first, n);
        if (!s->with.rows)
            continue;
        wide_copy(w, &(wide_chunk){s->with, first, n}, w->out);
        for (int64_t r = 0; r < s->a.rows; r++)
            s->dots[r] += (double)kernels->store->dot(w->in + r * kernels->chunk, w->out + r * kernels->chunk, n);
    }
    for (int64_t r = 0; r < s->a.rows && kernels->amx; r++)
        for (int64_t j = 0; j < s->b.rows; j++)
            s->out[r * w->ld + j] *= s->factor;
}

/* ----------------------------------------------------------------------------------------------- products */

/* Arguments of out[i, c] = (was ? was[i] * out[i, c] : 0) + factor[i] * sum over j of weight(i, j) * in[j, c]. */
typedef struct wide_product {
    wide_rows in, out;
    int64_t channels;
    const float *weight; /* rows are w->ld apart */
    bool across;         /* weight(i, j) is weight[j * ld + i] if set, otherwise weight[i * ld + j] */
    bool hides;          /* some pairs may be masked or dropped; their weights are then marks (-0) */
    const float *factor, *was;
} wide_product;

/* Adds the terms of NaN and infinity to a product that used zeros instead. Terms whose weight is a mark are left out.
 * Finite results keep their bits. */
static void add_nonfinite(const wide *w, const wide_product *p, int64_t n)
{
    int64_t chunk = w->kernels->chunk;
    for (int64_t j = 0; j < p->in.rows; j++)
        for (int64_t c = 0; c < n; c++) {
            float x = w->in[j * chunk + c];
            for (int64_t i = 0; i < p->out.rows && !isfinite(x); i++) {
                float weight = p->weight[p->across ? j * w->ld + i : i * w->ld + j];
                w->out[i * chunk + c] += attn__is_mark(weight) ? 0.0f : weight * x;
            }
        }
}

static void product_chunk(wide *w, const wide_product *p, int64_t first, int64_t n)
{
    int64_t chunk = w->kernels->chunk;
    wide_chunk in = {p->in, first, n}, out = {p->out, first, n};
    bool finite = wide_copy(w, &in, w->in) || !p->hides;
    for (int64_t i = 0; i < p->in.rows * chunk && !finite; i++)
        w->in[i] = isfinite(w->in[i]) ? w->in[i] : 0.0f;
    attn__prefetch_clear(&w->prefetch);
    wide_prefetch(w, &p->out, first, first + n);
    wide_prefetch(w, &p->in, first + n, p->channels);
    wide_multiply(w, &(attn__gemm_tile_args){.m = p->out.rows,
                                             .n = attn__round_up(n, w->kernels->tile->lanes),
                                             .k = p->in.rows,
                                             .a = p->weight,
                                             .am = p->across ? 1 : w->ld,
                                             .ak = p->across ? w->ld : 1,
                                             .b = w->in,
                                             .ldb = chunk,
                                             .c = w->out,
                                             .ldc = chunk});
    w->met |= !finite;
    if (!finite) {
        wide_copy(w, &in, w->in);
        add_nonfinite(w, p, n);
    }
    wide_store(w, &out, p->factor, p->was);
}

static int stream_product_sides(const wide *w, const wide_product *p, int64_t first, attn__feed_side *side)
{
    if (first >= p->channels)
        return 0;
    *side = stream_side(&p->in, ATTN__FEED_PAIRS, first, p->channels, w->stream.tiles[first / WIDE_CHUNK % 2][0]);
    return 1;
}

/* Sets up the packing and prefetching that run during the products of a chunk. The sums of chunk `drained` are stored
 * meanwhile. If `drained` is negative, nothing is stored. */
static void stream_feed_product(wide *w, const wide_product *p, int64_t first, int64_t drained, int64_t portions)
{
    attn__bf16x3_feed *feed = &w->stream.feed;
    attn__feed_pending *d = &feed->drain;
    feed->sides = stream_product_sides(w, p, first, feed->side);
    feed->nexts = stream_product_sides(w, p, first + WIDE_CHUNK, feed->next);
    *d = (attn__feed_pending){.ld = WIDE_CHUNK, .row_at = p->out.at, .factor = p->factor, .was = p->was};
    if (drained >= 0) {
        const float *at[ATTN__FEED_STEPS];
        d->rows = p->out.rows;
        d->from = w->stream.sums[drained / WIDE_CHUNK % 2];
        d->steps = stream_steps(&p->out, drained, p->channels, at);
        for (int64_t i = 0; i < d->steps; i++)
            d->at[i] = (float *)(uintptr_t)at[i];
        int64_t after = drained + WIDE_CHUNK, steps = 0;
        if (after < p->channels)
            steps = stream_steps(&p->out, after, p->channels, at);
        for (int64_t i = 0; i < steps; i++)
            d->next[i] = (float *)(uintptr_t)at[i];
    }
    attn__bf16x3_feed_begin(feed, portions);
}

/* Packs the weights into tiles of operand A. With several terms, returns false if any weight is infinite or NaN. */
static bool split_weights(wide *w, const wide_product *p)
{
    const attn__bf16x3_kernel *amx = w->kernels->amx;
    attn__bf16x3_side *to = &w->stream.weights;
    int terms = w->kernels->terms;
    attn__bf16x3_rows from = {.data = p->weight, .dtype = ATTN_F32, .ld = w->ld, .factor = 1.0f, .parts = terms};
    *to = attn__bf16x3_packed(to->data, attn__ceil_div(p->in.rows, DEPTH), terms);
    from.rows = p->across ? p->in.rows : p->out.rows;
    from.columns = p->across ? p->out.rows : p->in.rows;
    if (!p->across)
        return amx->split_rows(&from, to) || terms == 1;
    bool finite = amx->split_pairs(&from, to);
    amx->transpose(to->data, attn__ceil_div(p->out.rows, SIDE) * to->block / ATTN__BF16X3_TILE);
    return finite || terms == 1;
}

/* Multiplies the weights by a chunk, which must be packed into tiles. */
static void tiles_product_chunk(wide *w, const wide_product *p, int64_t n, int at, float *out)
{
    int64_t steps = attn__ceil_div(p->in.rows, DEPTH);
    attn__bf16x3_side b = attn__bf16x3_packed(w->stream.tiles[at][0], steps, w->kernels->terms);
    tiles_multiply(w, p->out.rows, n, w->stream.weights, b, steps, out, w->kernels->chunk, false);
}

static void stream_product(wide *w, const wide_product *p)
{
    int64_t waiting = -1, squares = attn__ceil_div(p->out.rows, 2 * SIDE) * attn__ceil_div(p->in.rows, DEPTH);
    stream_feed_product(w, p, 0, waiting, 0);
    bool finite = attn__bf16x3_feed_end(&w->stream.feed);
    for (int64_t first = 0; first < p->channels; first += WIDE_CHUNK) {
        int64_t n = attn__min(p->channels - first, WIDE_CHUNK);
        stream_feed_product(w, p, first + WIDE_CHUNK, waiting, squares * n / DEPTH * PORTIONS);
        int at = (int)(first / WIDE_CHUNK % 2);
        if (finite)
            tiles_product_chunk(w, p, n, at, w->stream.sums[at]);
        bool next = attn__bf16x3_feed_end(&w->stream.feed);
        if (!finite)
            product_chunk(w, p, first, n);
        waiting = finite ? first : -1;
        finite = next;
    }
    stream_feed_product(w, p, p->channels, waiting, 0);
    attn__bf16x3_feed_end(&w->stream.feed);
}

static void bf16_product_chunk(wide *w, const wide_product *p, int64_t first, int64_t n)
{
    attn__bf16x3_side b = attn__bf16x3_packed(w->stream.tiles[0][0], attn__ceil_div(p->in.rows, DEPTH), 1);
    if (!bf16_split(w, &(wide_chunk){p->in, first, n}, true, b) && p->hides) {
        product_chunk(w, p, first, n);
        return;
    }
    tiles_product_chunk(w, p, n, 0, w->out);
    wide_store(w, &(wide_chunk){p->out, first, n}, p->factor, p->was);
}

static void wide_multiply_all(wide *w, const wide_product *p)
{
    const wide_kernels *kernels = w->kernels;
    bool split = kernels->amx && split_weights(w, p);
    if (split && kernels->terms == TERMS) {
        stream_product(w, p);
        return;
    }
    for (int64_t first = 0, n; first < p->channels; first += n) {
        n = attn__min(p->channels - first, kernels->chunk);
        (split ? bf16_product_chunk : product_chunk)(w, p, first, n);
    }
}

/* ------------------------------------------------------------------------------------------------- memory */

/* Reserves memory for products in which each operand has at most `rows` rows. */
static void wide_take(wide *w, const wide_kernels *kernels, attn__arena *arena, int64_t rows, int64_t ld)
{
    int64_t side = attn__round_up(rows, DEPTH), panel = side * kernels->chunk;
    int terms = kernels->terms;
    w->kernels = kernels;
    w->ld = ld;
    w->in = attn__arena_floats(arena, panel);
    w->across = attn__arena_floats(arena, kernels->chunk * ld);
    w->out = attn__arena_floats(arena, panel);
    w->ones = attn__arena_floats(arena, side);
    w->table = attn__arena_offsets(arena, kernels->chunk);
    if (!kernels->amx)
        return;
    wide_stream *s = &w->stream;
    w->dots = attn__arena_floats(arena, side * SIDE);
    s->tiles[0][0] = attn__arena_take(arena, panel * terms, sizeof(uint16_t));
    s->tiles[1][0] = attn__arena_take(arena, panel * terms, sizeof(uint16_t));
    /* Scores and products use the same memory: for the tiles of two operands, or for weights and sums. */
    attn__arena both = *arena;
    s->tiles[0][1] = attn__arena_take(arena, panel * terms, sizeof(uint16_t));
    s->tiles[1][1] = attn__arena_take(arena, panel * terms, sizeof(uint16_t));
    s->weights.data = attn__arena_take(&both, side * side * terms, sizeof(uint16_t));
    s->sums[0] = attn__arena_floats(&both, panel);
    s->sums[1] = attn__arena_floats(&both, panel);
    if (both.used > arena->used)
        arena->used = both.used;
}

#endif
