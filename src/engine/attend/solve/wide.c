/* SPDX-License-Identifier: MIT
 *
 * wide.c - attention with heads of hundreds or thousands of channels, in f32. Tied rows of an alignment have such heads,
 * because each row adds channels.
 *
 * The two products take much longer than the softmax.  The weights of a block of queries and a block of keys stay in
 * the cache, and channels are processed in chunks. Chunks are packed into panels directly from the caller's arrays, so
 * that strides and bf16 need no other code:
 *
 *     S[queries,keys] += Q[queries,chunk] K[keys,chunk]^T       for each chunk of the channels
 *     P = exp(S - running maximum)                              in f32, or in double if more than masks changes scores
 *     O[queries,chunk] = P[queries,keys] V[keys,chunk]          for each chunk of the values
 *
 * The gradients are similar products.
 *
 * On AMX, an f32 number is the sum of three bf16 terms (kernels/bf16x3).  While AMX multiplies a chunk, the vector
 * units pack the next chunk, prefetch the chunk after that, and store the sums of the previous chunk
 * (kernels/bf16x3/bf16x3_feed.h).
 */
#include "attend/plan/solver.h"

#include "attend/block/finite.h"
#include "attend/block/gradient_sums.h"
#include "attend/block/items.h"
#include "attend/block/prefetch.h"
#include "attend/block/rows.h"
#include "attend/block/softmax_f64.h"
#include "attend/block/tile.h"
#include "base/integers.h"
#include "base/parallel.h"
#include "kernels/additive/additive.h"
#include "kernels/bf16x3/bf16x3_feed.h"
#include "kernels/gemm_tile/gemm_tile.h"

#include <float.h>
#include <stdio.h>

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

/* ------------------------------------------------------------------------------------------------- the plan's data */

typedef struct wide_plan {
    const attn__rows_f64_kernel *rows;
    wide_kernels kernels;
    attn__tile_plan tiles;
    int64_t queries, keys; /* largest number of queries and of keys of a tile */
    int64_t ld;            /* row stride of s and ds */
    bool single;           /* the softmax is computed in f32 too */
    bool hides;            /* some pairs may be masked or dropped */
    size_t bytes;          /* bytes of the memory of a thread */
} wide_plan;

enum { ROW_AT = 4 }; /* number of arrays in state.row_at */

/* The state of one thread for one batch index. Rows of doubles are those of one query. */
typedef struct state {
    const attn__canonical *canonical;
    const wide_plan *plan;
    const attn__execution *arrays;
    attn__sequence one; /* problem and arrays of a packed sequence */
    int64_t batch;
    wide wide;
    float *s, *ds;               /* [queries][ld]: scores, then weights; gradients of scores */
    double *row, *drow;          /* [keys]: a row of s and of ds, unless the softmax is in f32 */
    double *max, *sum;           /* [queries]: running maximum, sum of weights */
    uint8_t *fades;              /* [queries]: 1 if mask_fill has the weight 0, although not in each tile */
    double *slope;               /* [keys]: derivative of the softcap for the current row */
    uint8_t *seen;               /* ATTN__VISIBLE_... kind of each pair of a row */
    int64_t *bias_at, *dbias_at; /* offsets of the tile's keys in the bias and in its gradient */
    uint32_t *drop_at;           /* dropout column number of each key */
    double *delta;               /* [queries]: sum over channels of o * dout */
    float *sums, *factor, *was;  /* sums of O if bf16 cannot hold them; arguments of add_products */
    int64_t *row_at[ROW_AT];     /* offsets of rows */
    attn__visible_rows see;      /* limits of the block's queries */
    attn__visible_keys see_keys; /* limits of the tile's keys */
    attn__visible_span reach;
    unsigned hidden; /* result of attn__visible_of for the tile */
} state;

typedef struct tile {
    int64_t query, queries, key, keys;
} tile;

static double *take(attn__arena *arena, int64_t n)
{
    return attn__arena_take(arena, n, sizeof(double));
}

static void take_state(state *w, const wide_plan *p, const attn__canonical *canonical, attn__arena *arena)
{
    const attn_problem *problem = &canonical->problem;
    int64_t backward = canonical->backward, keys = p->keys;
    int64_t rows = attn__round_up(p->queries, DEPTH), most = attn__max(p->queries, keys);
    bool keeps = problem->dtype == ATTN_BF16 && canonical->key.size > keys;
    w->max = take(arena, p->queries);
    w->sum = take(arena, p->queries);
    w->fades = attn__arena_take(arena, p->queries, 1);
    w->row = take(arena, keys);
    w->drow = take(arena, backward ? keys : 0);
    w->slope = take(arena, problem->softcap != 0 ? keys : 0);
    w->seen = attn__arena_take(arena, keys, 1);
    w->bias_at = attn__arena_offsets(arena, canonical->has_bias ? keys : 0);
    w->dbias_at = attn__arena_offsets(arena, problem->flags & ATTN_WANT_DBIAS ? keys : 0);
    w->drop_at = attn__arena_take(arena, canonical->has_dropout ? keys : 0, sizeof *w->drop_at);
    attn__visible_rows_take(&w->see, &p->tiles.visible, arena, p->queries, ATTN__VISIBLE_ANY);
    attn__visible_keys_take(&w->see_keys, &p->tiles.visible, arena, keys, ATTN__VISIBLE_ANY);
    wide_take(&w->wide, &p->kernels, arena, most, p->ld);
    w->s = attn__arena_floats(arena, rows * p->ld);
    w->ds = attn__arena_floats(arena, backward ? rows * p->ld : 0);
    w->sums = attn__arena_floats(arena, keeps ? p->queries * canonical->value.size : 0);
    w->delta = take(arena, p->queries);
    w->factor = attn__arena_floats(arena, rows);
    w->was = attn__arena_floats(arena, rows);
    for (int i = 0; i < ROW_AT; i++)
        w->row_at[i] = attn__arena_offsets(arena, most);
}

/* ------------------------------------------------------------------------------------------------- threads */

typedef struct job {
    const attn__canonical *canonical;
    const wide_plan *plan;
    const attn__execution *arrays;
    char *workspace;
    int64_t blocks; /* forward: number of blocks of queries of a batch index */
    attn__slots slots;
    unsigned broadcast; /* gradients in which several batch indices or pairs share an element */
    unsigned adds;      /* gradients that are added to, not overwritten */
} job;

/* Places the state of each thread at the start of its memory. It persists between items. */
static void start_threads(const job *j)
{
    for (int i = 0; i < j->canonical->threads; i++) {
        attn__arena arena = {.base = j->workspace + (size_t)i * j->plan->bytes};
        state *w = attn__arena_take(&arena, 1, sizeof(state));
        *w = (state){.plan = j->plan, .batch = -1};
        take_state(w, j->plan, j->canonical, &arena);
    }
}

/* Prepares a thread for the products of a batch index. end_batch must be called afterwards. */
static state *begin_batch(const job *j, int64_t batch, int thread)
{
    state *w = (state *)(void *)(j->workspace + (size_t)thread * j->plan->bytes);
    w->canonical = j->canonical;
    w->arrays = j->arrays;
    attn__sequence_enter(&w->one, &w->canonical, &w->arrays, batch);
    w->batch = batch;
    for (int64_t i = 0; i < attn__max(j->plan->queries, j->plan->keys); i++)
        w->wide.ones[i] = 1.0f;
    if (j->plan->kernels.amx)
        j->plan->kernels.amx->begin();
    return w;
}

static void end_batch(const state *w)
{
    if (w->plan->kernels.amx)
        w->plan->kernels.amx->end();
}

/* ---------------------------------------------------------------------------------------------- blocks and tiles */

static int64_t offset_of(const state *w, size_t stride, int64_t query)
{
    return attn__offsets_one(&w->canonical->batch, stride, w->batch) +
           attn__offsets_one(&w->canonical->query, stride, query);
}

static void start_block(state *w, const tile *t)
{
    attn__visible_rows_start(&w->see, w->canonical, w->arrays, w->batch, t->query, t->queries, 1);
    w->reach = attn__visible_span_of(&w->see, 0, t->queries);
}

/* Starts the tile whose keys begin at t->key. Returns false if all of its pairs are masked and have no score. */
static bool start_tile(state *w, tile *t)
{
    const attn__canonical *canonical = w->canonical;
    t->keys = attn__min(canonical->key.size - t->key, w->plan->keys);
    if (canonical->has_bias)
        attn__offsets_fill(&canonical->key, ATTN__STRIDE(dim.bias), t->key, t->keys, w->bias_at);
    if (canonical->problem.flags & ATTN_WANT_DBIAS)
        attn__offsets_fill(&canonical->key, ATTN__STRIDE(dim.dbias), t->key, t->keys, w->dbias_at);
    if (canonical->has_dropout)
        attn__dropout_columns(canonical, t->key, t->keys, w->drop_at);
    attn__visible_keys_start(&w->see_keys, canonical, t->key, t->keys);
    attn__visible_tile pairs = {&w->see, 0, t->queries, &w->see_keys, 0, t->keys};
    w->hidden = attn__visible_of(&pairs, &w->reach);
    return w->hidden != ATTN__VISIBLE_NONE;
}

/* Returns the kinds of query i's pairs in the tile. If only the pairs in [from, to) are visible, returns NULL. */
static const uint8_t *kinds_of(const state *w, const tile *t, int64_t i, int64_t *from, int64_t *to)
{
    bool ranges =
        w->hidden == ATTN__VISIBLE_ALL || (w->hidden == ATTN__VISIBLE_LIMITS && w->plan->tiles.visible.ranges);
    *from = 0;
    *to = t->keys;
    if (!ranges || w->canonical->problem.mask_fill != 0) {
        attn__visible_kinds(&(attn__visible_tile){&w->see, i, 1, &w->see_keys, 0, t->keys}, w->seen);
        return w->seen;
    }
    if (w->hidden == ATTN__VISIBLE_LIMITS) {
        *from = attn__clamp(w->see.begin[i] - t->key, 0, t->keys);
        *to = attn__clamp(w->see.end[i] - t->key, *from, t->keys);
    }
    return NULL;
}

/* Returns an operand's rows of the tile's queries or keys. The offsets of the rows are written to row_at[which]. */
static wide_rows rows_of(const state *w, const tile *t, attn__operand op, int which)
{
    const attn__canonical *canonical = w->canonical;
    bool queries = attn__operand_table[op].roles & ATTN__IN_QUERY;
    int64_t n = queries ? t->queries : t->keys, *at = w->row_at[which];
    attn__operand_offsets(canonical, op, w->batch, queries ? t->query : t->key, n, at);
    return (wide_rows){wide_operand_of(canonical, op), attn__operand_array(w->arrays, op), at, n};
}

/* Computes the scaled scores of the tile, without softcap, bias and masks. They are in base 2 for a softmax in f32. */
static void score(state *w, const tile *t)
{
    const attn__canonical *canonical = w->canonical;
    wide_score(&w->wide, &(wide_scores){.a = rows_of(w, t, ATTN__OP_Q, 0),
                                        .b = rows_of(w, t, ATTN__OP_K, 1),
                                        .channels = canonical->contract.size,
                                        .factor = w->plan->single ? attn__score_factor(canonical)
                                                                  : (float)canonical->problem.scale,
                                        .out = w->s});
}

/* ----------------------------------------------------------------------------------------------- rows in double */

static void hide(const state *w, const tile *t, int64_t i, double *s)
{
    int64_t from, to;
    const uint8_t *seen = kinds_of(w, t, i, &from, &to);
    double fill = w->canonical->problem.mask_fill;
    if (fill != 0)
        (void)attn__f64_hide(-(double)INFINITY, fill, w->seen, s, t->keys);
    else if (seen)
        w->plan->rows->hide(s, seen, t->keys);
    else
        attn__f64_limit(from, to, s, t->keys);
}

/* Returns row i of the scores with softcap, bias and masks. w->seen gets the kind of each pair, if some may be hidden;
 * a score of -infinity is OUT. */
static double *finish_scores(const state *w, const tile *t, int64_t i)
{
    const attn__canonical *canonical = w->canonical;
    double *s = w->row;
    w->plan->rows->widen(w->s + i * w->plan->ld, t->keys, s);
    if (canonical->problem.softcap != 0)
        attn__f64_cap(canonical->problem.softcap, s, w->slope, t->keys);
    int64_t row = canonical->has_bias ? offset_of(w, ATTN__STRIDE(dim.bias), t->query + i) : 0;
    for (int64_t j = 0; canonical->has_bias && j < t->keys; j++)
        s[j] += (double)((const float *)w->arrays->at.bias)[row + w->bias_at[j]];
    hide(w, t, i, s);
    for (int64_t j = 0; j < t->keys && w->plan->hides && canonical->problem.mask_fill == 0; j++)
        w->seen[j] = s[j] == -(double)INFINITY ? ATTN__VISIBLE_OUT : ATTN__VISIBLE_KEY;
    return s;
}

static double softmax_step(const state *w, const tile *t, int64_t i, double *s)
{
    return attn__f64_softmax(w->plan->rows, s, t->keys, w->max + i, w->sum + i);
}

static void drop(const state *w, const tile *t, int64_t i, double *x)
{
    if (w->canonical->has_dropout)
        attn__f64_drop(w->canonical, w->arrays, (uint64_t)offset_of(w, ATTN__STRIDE(drop), t->query + i), w->drop_at, x,
                       t->keys);
}

/* Marks pairs without a term in the sums of values, and applies dropout. */
static void finish_weights(const state *w, const tile *t, int64_t i, double *p)
{
    if (w->plan->hides)
        attn__f64_mark_weights(w->seen, w->fades[i], p, t->keys);
    drop(w, t, i, p);
}

/* A sink is a key of value 0 that comes before all others. */
static void start_softmax(const state *w, const tile *t)
{
    for (int64_t i = 0; i < t->queries; i++) {
        double sink = -(double)INFINITY;
        if (w->canonical->extras & ATTN__SINKS)
            sink = (double)((const float *)w->arrays->at.sinks)[offset_of(w, ATTN__STRIDE(dim.sinks), t->query + i)];
        w->max[i] = sink;
        w->sum[i] = sink > -(double)INFINITY || sink != sink;
        w->fades[i] = 0;
    }
}

/* Starts another pass over the tiles, which knows the rows in which mask_fill has the weight 0. */
static void restart_softmax(const state *w, const tile *t)
{
    for (int64_t i = 0; i < t->queries; i++) { /* mask_fill excludes sinks */
        w->max[i] = -(double)INFINITY;
        w->sum[i] = 0;
    }
}

/* Finds the rows in which mask_fill has the weight 0, from the final maxima. Reports whether there are any. */
static bool find_fades(const state *w, const tile *t)
{
    bool any = false;
    for (int64_t i = 0; i < t->queries; i++) {
        w->fades[i] = exp(w->canonical->problem.mask_fill - w->max[i]) == 0;
        any = any || w->fades[i];
    }
    return any;
}

/* Returns the divisor of the sums of row i, or 0 if all keys of the row are masked. */
static double whole_of(const state *w, int64_t i)
{
    return w->sum[i] == 0 && w->max[i] == -(double)INFINITY ? 0 : w->sum[i];
}

/* ------------------------------------------------------------------------------------------------- forward */

/* Multiplies `weights` by the rows `in`: out = was * out + factor * product. `was` and `factor` have a number per row.
 * If `was` is NULL, out = factor * product. */
static void add_products(state *w, wide_rows in, wide_rows out, const float *weights, bool across, const float *factor,
                         const float *was)
{
    wide_multiply_all(&w->wide, &(wide_product){.in = in,
                                                .out = out,
                                                .channels = in.operand.channels->size,
                                                .weight = weights,
                                                .across = across,
                                                .hides = w->plan->hides,
                                                .factor = factor,
                                                .was = was});
}

enum { SINGLE_LANES = 16 }; /* largest number of lanes of any kernel; rows of floats are padded to it */

static float largest_of(const float *s, int64_t padded)
{
    float most[SINGLE_LANES], largest = -INFINITY;
    memcpy(most, s, sizeof most);
    for (int64_t j = SINGLE_LANES; j < padded; j += SINGLE_LANES)
        for (int l = 0; l < SINGLE_LANES; l++)
            most[l] = most[l] > s[j + l] ? most[l] : s[j + l];
    for (int l = 0; l < SINGLE_LANES; l++)
        largest = most[l] > largest ? most[l] : largest;
    return largest;
}

/* Sets s to x for masked keys and for padding. */
static void set_masked(float *s, const uint8_t *seen, int64_t from, int64_t to, int64_t keys, int64_t padded, float x)
{
    for (int64_t j = 0; j < keys && seen; j++)
        s[j] = seen[j] ? s[j] : x;
    for (int64_t j = 0; j < from; j++)
        s[j] = x;
    for (int64_t j = to; j < padded; j++)
        s[j] = x;
}

/* Does the same as softmax_step and finish_weights, for a row of floats in base 2. Each lane has a part of the row. */
static double single_softmax_step(const state *w, const tile *t, int64_t i)
{
    const attn__online_softmax_kernel *kernel = w->plan->kernels.lanes;
    float *s = w->s + i * w->plan->ld;
    float top[SINGLE_LANES], max[SINGLE_LANES], sum[SINGLE_LANES] = {0}, shrink[SINGLE_LANES];
    int64_t from, to, padded = attn__round_up(t->keys, SINGLE_LANES);
    const uint8_t *seen = kinds_of(w, t, i, &from, &to);
    set_masked(s, seen, from, to, t->keys, padded, -INFINITY);
    float largest = largest_of(s, padded);
    for (int l = 0; l < kernel->lanes; l++) {
        top[l] = largest;
        max[l] = (float)w->max[i];
    }
    bool changed;
    kernel->softmax(&(attn__online_softmax_args){.s = s,
                                                 .rows = padded / kernel->lanes,
                                                 .width = kernel->lanes,
                                                 .top = top,
                                                 .m = max,
                                                 .l = sum,
                                                 .shrink = shrink,
                                                 .changed = &changed});
    if (w->plan->hides)
        set_masked(s, seen, from, to, t->keys, padded, -0.0f);
    w->max[i] = (double)max[0];
    w->sum[i] *= (double)shrink[0];
    for (int l = 0; l < kernel->lanes; l++)
        w->sum[i] += (double)sum[l];
    return (double)shrink[0];
}

/* The last tile also divides by the sums of weights. If bf16 cannot hold sums, `o` is f32 scratch. */
static void forward_tile(state *w, const tile *t, bool first, bool last, wide_rows o)
{
    float *factor = w->factor, *was = w->was;
    score(w, t);
    for (int64_t i = 0; i < t->queries; i++) {
        double *s = w->plan->single ? NULL : finish_scores(w, t, i);
        double left = s ? softmax_step(w, t, i, s) : single_softmax_step(w, t, i);
        double whole = last ? whole_of(w, i) : 1;
        factor[i] = whole == 0 ? 0.0f : (float)(1 / whole);
        was[i] = (float)left * factor[i];
        if (!s)
            continue;
        finish_weights(w, t, i, s);
        w->plan->rows->narrow(s, t->keys, w->s + i * w->plan->ld);
    }
    add_products(w, rows_of(w, t, ATTN__OP_V, 0), o, w->s, false, factor, first ? NULL : was);
}

/* Stores the sums `from`, which were kept in f32 scratch memory, in the rows `o`. */
static void move_sums(const state *w, const wide_rows *from, const wide_rows *o)
{
    int64_t values = w->canonical->value.size, chunk = w->plan->kernels.chunk;
    for (int64_t first = 0; first < values; first += chunk) {
        wide_chunk sums = {*from, first, attn__min(values - first, chunk)}, to = {*o, first, sums.n};
        wide_copy(&w->wide, &sums, w->wide.out);
        wide_store(&w->wide, &to, w->wide.ones, NULL);
    }
}

/* Runs all tiles up to the one that begins at key `last`. Returns false if there are none. */
static bool forward_tiles(state *w, tile *t, int64_t last, wide_rows sums)
{
    bool first = true;
    for (t->key = 0; t->key <= last; t->key += w->plan->keys)
        if (start_tile(w, t)) {
            forward_tile(w, t, first, t->key == last, sums);
            first = false;
        }
    return !first;
}

static void store_lse(const state *w, const tile *t)
{
    double unit = w->plan->single ? ATTN__LOG2E : 1;
    for (int64_t i = 0; i < t->queries && (w->canonical->problem.flags & ATTN_WANT_LSE); i++) {
        double whole = whole_of(w, i);
        ((float *)w->arrays->at.lse)[offset_of(w, ATTN__STRIDE(dim.lse), t->query + i)] =
            (float)(whole == 0 ? -(double)INFINITY : w->max[i] / unit + log(whole));
    }
}

static void forward_block(state *w, int64_t query, int64_t queries)
{
    const attn__canonical *canonical = w->canonical;
    tile t = {.query = query, .queries = queries};
    int64_t last = -1, values = canonical->value.size;
    start_softmax(w, &t);
    wide_rows o = rows_of(w, &t, ATTN__OP_O, 2), sums = o;
    start_block(w, &t);
    for (; t.key < canonical->key.size; t.key += w->plan->keys)
        last = start_tile(w, &t) ? t.key : last;
    bool keeps = canonical->problem.dtype == ATTN_BF16 && canonical->key.size > w->plan->keys;
    if (keeps) {
        int64_t *at = w->row_at[ROW_AT - 1];
        for (int64_t i = 0; i < queries; i++)
            at[i] = i * values;
        sums = (wide_rows){{NULL, 0, ATTN_F32, values}, w->sums, at, queries};
    }
    w->wide.met = false;
    bool any = forward_tiles(w, &t, last, sums);
    if (w->wide.met && canonical->problem.mask_fill != 0 && find_fades(w, &t)) {
        restart_softmax(w, &t);
        forward_tiles(w, &t, last, sums);
    }
    if (!any)
        wide_clear(&w->wide, &o, values);
    else if (keeps)
        move_sums(w, &sums, &o);
    store_lse(w, &t);
}

static void run_item(void *user, int64_t item, int thread)
{
    const job *j = user;
    int64_t first = item % j->blocks * j->plan->queries;
    state *w = begin_batch(j, item / j->blocks, thread);
    int64_t queries = w->canonical->query.size;
    if (first < queries)
        forward_block(w, first, attn__min(queries - first, j->plan->queries));
    end_batch(w);
}

/* ------------------------------------------------------------------------------------------------ backward */

/* Stores row i of the bias gradient, which equals the gradient of the scores. If `ds` is NULL, it is 0. */
static void store_bias(const state *w, const tile *t, int64_t i, unsigned adds, const double *ds)
{
    float *row = (float *)w->arrays->at.dbias + offset_of(w, ATTN__STRIDE(dim.dbias), t->query + i);
    for (int64_t j = 0; j < t->keys; j++) {
        double before = adds & ATTN_WANT_DBIAS ? (double)row[w->dbias_at[j]] : 0;
        row[w->dbias_at[j]] = (float)(before + (ds ? ds[j] : 0));
    }
}

/* Reports whether log-sum-exps are computed again, because with a mask_fill the stored values have too few digits. With
 * sinks the stored values are used, because the backward pass does not have the sinks. */
static bool normalizes_again(const state *w)
{
    const attn_problem *p = &w->canonical->problem;
    return p->mask_fill != 0 && !(p->flags & ATTN_WITH_SINKS);
}

/* Finds the maximum and the sum of each row of the block in an extra pass over the tiles. */
static void find_normalizers(state *w, tile *t)
{
    start_softmax(w, t);
    for (t->key = 0; t->key < w->canonical->key.size; t->key += w->plan->keys) {
        if (!start_tile(w, t))
            continue;
        score(w, t);
        for (int64_t i = 0; i < t->queries; i++)
            (void)softmax_step(w, t, i, finish_scores(w, t, i));
    }
}

/* Returns the log-sum-exp of a row. If it is computed again, it is relative to the row's maximum, which is subtracted
 * from s. */
static double normalizer_of(const state *w, const tile *t, int64_t i, double *s)
{
    if (!normalizes_again(w))
        return (double)((const float *)w->arrays->at.lse)[offset_of(w, ATTN__STRIDE(dim.lse), t->query + i)];
    double max = w->max[i];
    for (int64_t j = 0; j < t->keys && isfinite(max); j++)
        s[j] -= max;
    return max == -(double)INFINITY ? max : log(w->sum[i]);
}

/* Converts scores `s` to weights, and gradients of weights `dp` to gradients of scores. */
static void weigh(const state *w, const tile *t, int64_t i, double lse, double *s, double *dp)
{
    const attn__canonical *canonical = w->canonical;
    double delta = w->delta[i];
    if (canonical->extras & ATTN__DLSE)
        delta -= (double)((const float *)w->arrays->at.dlse)[offset_of(w, ATTN__STRIDE(dim.lse), t->query + i)];
    drop(w, t, i, dp);
    w->plan->rows->gradients(s, dp, t->keys, lse, delta, (double)FLT_MIN); /* f32 cannot hold smaller weights */
    for (int64_t j = 0; j < t->keys && canonical->problem.mask_fill != 0; j++)
        dp[j] = w->seen[j] == ATTN__VISIBLE_FILL ? 0 : dp[j];
}

/* Fills a row whose log-sum-exp is NaN. A visible key gets the weight and the gradient NaN. A key with the score
 * mask_fill gets the weight NaN and the gradient 0. */
static void spread_nan(const state *w, const tile *t, double nan, double *s, double *dp)
{
    bool fills = w->canonical->problem.mask_fill != 0;
    for (int64_t j = 0; j < t->keys; j++) {
        bool out = fills ? w->seen[j] == ATTN__VISIBLE_OUT : s[j] == -(double)INFINITY;
        s[j] = out ? 0 : nan;
        dp[j] = out || (fills && w->seen[j] == ATTN__VISIBLE_FILL) ? 0 : nan;
    }
}

/* Converts gradients of capped scores to gradients of the scores before softcap and scale. */
static void scale_row(const state *w, const tile *t, double *ds)
{
    const attn_problem *p = &w->canonical->problem;
    for (int64_t j = 0; j < t->keys && p->softcap != 0; j++)
        ds[j] = ds[j] == 0 && !w->plan->hides ? 0 : ds[j] * w->slope[j]; /* the slope of a masked pair is undefined */
    w->plan->rows->scale(ds, t->keys, p->scale);
    if (w->plan->hides)
        attn__f64_mark_gradients(w->seen, ds, t->keys);
}

/* Computes the weights and the gradients of the scores of a row in double. */
static void backward_row(state *w, const tile *t, int64_t i, unsigned adds)
{
    const attn__rows_f64_kernel *rows = w->plan->rows;
    double *s = finish_scores(w, t, i), *dp = w->drow;
    rows->widen(w->ds + i * w->plan->ld, t->keys, dp);
    double lse = normalizer_of(w, t, i, s);
    if (lse == -(double)INFINITY) { /* the row has no keys */
        memset(s, 0, (size_t)t->keys * sizeof *s);
        memset(dp, 0, (size_t)t->keys * sizeof *dp);
        memset(w->seen, ATTN__VISIBLE_OUT, (size_t)t->keys);
    } else if (lse != lse) {
        spread_nan(w, t, lse, s, dp);
    } else {
        weigh(w, t, i, lse, s, dp);
    }
    finish_weights(w, t, i, s);
    if (w->canonical->problem.flags & ATTN_WANT_DBIAS)
        store_bias(w, t, i, adds, dp);
    scale_row(w, t, dp);
    rows->narrow(s, t->keys, w->s + i * w->plan->ld);
    rows->narrow(dp, t->keys, w->ds + i * w->plan->ld);
}

/* Computes the weights and the gradients of the scores of a tile in f32. w->delta has o . dout of each row. */
static void backward_rows(const state *w, const tile *t)
{
    const attn__canonical *canonical = w->canonical;
    attn__tile_rows rows = {.lse = w->factor, .delta = w->was};
    attn__tile_keys keys = {.see = {.first = t->key}};
    attn__tile_place place = {canonical, w->arrays, 0, w->batch, t->query, t->queries};
    for (int64_t i = 0; i < t->queries; i++)
        rows.delta[i] = (float)w->delta[i];
    attn__tile_rows_lse(&rows, &w->plan->tiles, &place, &w->see);
    attn__tile_weights(&(attn__tile){.plan = &w->plan->tiles,
                                     .see = &w->see,
                                     .rows = &rows,
                                     .nrows = t->queries,
                                     .keys = &keys,
                                     .nkeys = t->keys,
                                     .ld = w->plan->ld,
                                     .s = w->s,
                                     .ds = w->ds,
                                     .full = w->hidden == ATTN__VISIBLE_ALL});
    for (int64_t i = 0; i < t->queries; i++) {
        float *ds = w->ds + i * w->plan->ld;
        w->plan->kernels.channels->scale((float)canonical->problem.scale, ds, t->keys);
        for (int64_t j = 0; j < t->keys && canonical->problem.scale < 0; j++)
            ds[j] = ds[j] == 0 ? -ds[j] : ds[j]; /* marks stay -0, and other zeros +0 */
    }
}

/* Returns the gradients that a tile overwrites because no earlier tile has added to them. */
static unsigned fresh_of(const tile *t, bool first, unsigned adds)
{
    return ((t->query == 0 ? ATTN_WANT_DK | ATTN_WANT_DV : 0u) | (first ? ATTN_WANT_DQ : 0u)) & ~adds;
}

static void backward_tile(state *w, const tile *t, bool first, unsigned adds)
{
    static const struct {
        unsigned want;
        attn__operand in, out;
    } gradients[] = {{ATTN_WANT_DV, ATTN__OP_DOUT, ATTN__OP_DV},
                     {ATTN_WANT_DK, ATTN__OP_Q, ATTN__OP_DK},
                     {ATTN_WANT_DQ, ATTN__OP_K, ATTN__OP_DQ}};
    const float *ones = w->wide.ones;
    memset(w->delta, 0, (size_t)t->queries * sizeof(double));
    wide_score(&w->wide, &(wide_scores){.a = rows_of(w, t, ATTN__OP_DOUT, 0),
                                        .b = rows_of(w, t, ATTN__OP_V, 1),
                                        .with = rows_of(w, t, ATTN__OP_O, 2),
                                        .channels = w->canonical->value.size,
                                        .factor = 1.0f,
                                        .out = w->ds,
                                        .dots = w->delta});
    score(w, t);
    if (w->plan->single)
        backward_rows(w, t);
    for (int64_t i = 0; i < t->queries && !w->plan->single; i++)
        backward_row(w, t, i, adds);
    for (int g = 0; g < 3; g++)
        if (w->canonical->problem.flags & gradients[g].want)
            add_products(w, rows_of(w, t, gradients[g].in, 0), rows_of(w, t, gradients[g].out, 1),
                         g == 0 ? w->s : w->ds, g < 2, ones,
                         fresh_of(t, first, adds) & gradients[g].want ? NULL : ones);
}

static void clear_gradients(const state *w, const tile *t, unsigned gradients)
{
    static const unsigned wants[] = {ATTN_WANT_DQ, ATTN_WANT_DK, ATTN_WANT_DV};
    static const attn__operand ops[] = {ATTN__OP_DQ, ATTN__OP_DK, ATTN__OP_DV};
    for (int g = 0; g < 3; g++)
        if (gradients & w->canonical->problem.flags & wants[g]) {
            wide_rows rows = rows_of(w, t, ops[g], 0);
            wide_clear(&w->wide, &rows, rows.operand.channels->size);
        }
}

static void backward_block(state *w, tile *t, unsigned adds)
{
    bool first = true, clears = w->canonical->problem.flags & ~adds & ATTN_WANT_DBIAS;
    start_block(w, t);
    if (normalizes_again(w))
        find_normalizers(w, t);
    for (t->key = 0; t->key < w->canonical->key.size; t->key += w->plan->keys) {
        bool sees = start_tile(w, t);
        if (sees)
            backward_tile(w, t, first, adds);
        else
            clear_gradients(w, t, fresh_of(t, false, adds));
        for (int64_t i = 0; i < t->queries && !sees && clears; i++) /* masked pairs have the bias gradient 0 */
            store_bias(w, t, i, 0, NULL);
        first = first && !sees;
    }
    if (first)
        clear_gradients(w, t, ATTN_WANT_DQ & ~adds);
}

/* First clears the gradients in `clear`, which belong to packed keys. If there are no queries, dk and dv become 0. */
static void run_batch(state *w, unsigned adds, unsigned clear)
{
    int64_t queries = w->canonical->query.size;
    tile all = {0};
    if (queries == 0)
        clear |= (ATTN_WANT_DK | ATTN_WANT_DV) & ~adds;
    for (; all.key < w->canonical->key.size; all.key += w->plan->keys) {
        all.keys = attn__min(w->canonical->key.size - all.key, w->plan->keys);
        clear_gradients(w, &all, clear);
    }
    for (int64_t first = 0; first < queries; first += w->plan->queries) {
        tile t = {.query = first, .queries = attn__min(queries - first, w->plan->queries)};
        backward_block(w, &t, adds);
    }
}

/* If several BATCH indices share packed keys, the first one clears the gradients of the keys. */
static void run_one(const job *j, int64_t batch, int thread)
{
    state *w = begin_batch(j, batch, thread);
    unsigned clear = (attn__batch_comes_first(j->canonical, ATTN__OP_DK, batch) ? ATTN_WANT_DK : 0u) |
                     (attn__batch_comes_first(j->canonical, ATTN__OP_DV, batch) ? ATTN_WANT_DV : 0u);
    run_batch(w, j->adds, clear & (attn__is_packed(j->canonical) ? j->broadcast : 0));
    end_batch(w);
}

static void run_slot(void *user, int64_t slot, int thread)
{
    const job *j = user;
    const attn__slots *slots = &j->slots;
    attn__sums sums;
    int64_t item, end;
    /* no pass writes the bias gradient of padding pairs */
    unsigned clear = attn__is_packed(j->canonical) ? ATTN_WANT_DBIAS : j->broadcast;
    if (j->canonical->problem.accumulate)
        clear = 0;
    for (attn__slots_start(slots, slot, &sums, &item, &end); item < end; item++) {
        attn__gradients_clear(j->canonical, j->arrays, attn__batch_split_index(&slots->split, j->canonical, item, 0),
                              clear, slots->split.apart);
        for (int64_t rest = 0; rest < slots->split.rest; rest++)
            run_one(j, attn__batch_split_index(&slots->split, j->canonical, item, rest), thread);
    }
}

/* ------------------------------------------------------------------------------------------------- the plan */

/* Block sizes: MOST_QUERIES queries forward, BLOCK queries and keys backward. At these sizes, P and dS fill half of a
 * typical L2 cache. */
enum { BLOCK = 256, MOST_QUERIES = 288 };

/* Reports whether products of f32 run on AMX. Each step along k must be a run of adjacent channels in every operand. */
static bool uses_amx(const attn__canonical *canonical)
{
    static const attn__operand ops[] = {ATTN__OP_Q,    ATTN__OP_K,  ATTN__OP_V,  ATTN__OP_O,
                                        ATTN__OP_DOUT, ATTN__OP_DQ, ATTN__OP_DK, ATTN__OP_DV};
    bool fit = wide_stream_pays(canonical) && !(canonical->backward && attn__sums_shared(canonical));
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        wide_operand x = wide_operand_of(canonical, ops[i]);
        fit = fit && (!attn__operand_used(&canonical->problem, ops[i]) || wide_streams(&x));
    }
    return fit;
}

/* Reports whether products of bf16 run on AMX. This is so in forward passes whose sizes fill whole AMX tiles well. */
static bool uses_bf16(const attn__canonical *canonical)
{
    enum { LEAST = 24 };
    double queries = (double)attn__round_up(canonical->query.size, SIDE), keys = (double)canonical->key.size;
    double channels = (double)canonical->contract.size, values = (double)canonical->value.size;
    double whole =
        queries * (double)(attn__round_up(canonical->key.size, SIDE) * attn__round_up(canonical->contract.size, DEPTH) +
                           attn__round_up(canonical->key.size, DEPTH) * attn__round_up(canonical->value.size, SIDE));
    return canonical->problem.dtype == ATTN_BF16 && !canonical->backward && attn__bf16x3_for(canonical->isa) &&
           canonical->query.size >= LEAST && whole <= 1.5 * queries * keys * (channels + values);
}

/* Divides n into equal parts of at most `most`. Returns the length of a part, rounded up to a multiple of `unit`. */
static int64_t part_of(int64_t n, int64_t most, int64_t unit)
{
    int64_t parts = attn__ceil_div(n, most);
    return attn__round_up(parts > 1 ? attn__ceil_div(n, parts) : n, unit);
}

/* Forward, the scores of a block fill half of the L2 cache, and panels fill the rest. */
static void choose_blocks(wide_plan *p, const attn__canonical *canonical)
{
    enum { KEYS = 512, AMX_KEYS = 256, UNIT = 8, FEW_ITEMS = 8 };
    bool stream = p->kernels.terms == TERMS;
    int64_t keys = canonical->key.size, queries = canonical->query.size;
    if (canonical->backward) {
        p->keys = part_of(keys, BLOCK, 1);
        p->queries = part_of(queries, BLOCK, 1);
    } else {
        p->keys = part_of(keys, stream ? AMX_KEYS : KEYS, p->kernels.amx ? DEPTH : UNIT);
        int64_t most = (int64_t)canonical->caches.l2 / 2 / (int64_t)sizeof(float) / p->keys;
        int64_t pieces = attn__ceil_div(queries, attn__min(attn__max(most, 2 * SIDE), MOST_QUERIES));
        /* Block sizes must not depend on the number of threads, because an AMX block with NaN or infinity is rounded
         * differently. */
        int64_t items = stream ? FEW_ITEMS : canonical->threads;
        if (canonical->batch.size < items)
            pieces = attn__max(pieces, items);
        p->queries = attn__round_up(attn__ceil_div(queries, pieces), UNIT);
    }
    p->keys = attn__min(p->keys, keys);
    p->ld = attn__round_up(p->keys, SIDE);
    if (p->ld * (int64_t)sizeof(float) % 128 == 0) /* avoids a stride that maps columns to few cache sets */
        p->ld += SIDE;
}

/* Reports whether the softmax runs in f32, which takes a third of the time. Before the softmax, scores may only be
 * masked: by ranges of keys or, in the forward pass, by a mask. */
static bool is_single(const attn__canonical *canonical, const attn__visible *visible)
{
    const attn_problem *p = &canonical->problem;
    return p->softcap == 0 && p->mask_fill == 0 && !canonical->has_bias && !canonical->has_dropout &&
           !(canonical->extras & ATTN__SINKS) && !(p->flags & (ATTN_WANT_DBIAS | ATTN_WITH_SINKS)) &&
           (!canonical->backward || (visible->ranges && !visible->mask && !visible->blocks));
}

static void choose_kernels(wide_plan *p, const attn__canonical *canonical)
{
    wide_kernels *k = &p->kernels;
    p->rows = attn__rows_f64_for(canonical->isa);
    k->tile = attn__gemm_tile_for(canonical->isa);
    k->lanes = attn__online_softmax_for(canonical->isa);
    k->store = attn__softmax_backward_for(canonical->isa);
    k->channels = attn__additive_for(canonical->isa);
    k->terms = uses_bf16(canonical) ? 1 : uses_amx(canonical) ? TERMS : 0;
    k->amx = k->terms ? attn__bf16x3_for(canonical->isa) : NULL;
    k->chunk = k->terms == 1 ? WIDE_AMX_CHUNK : WIDE_CHUNK;
}

/* Returns NULL for a softmax of dot products in f32 or bf16.  In batch-invariant contexts float64 is used instead,
 * where the order of sums does not depend on the number of keys. Bf16 cannot hold sums, so the gradients of a bf16
 * problem must have one block. */
static const char *refuse(const attn__canonical *canonical)
{
    const double most = 0x1p32; /* numbers in the workspace of a thread */
    const attn_problem *p = &canonical->problem;
    const char *unusual = attn__refuse_unusual(canonical, ATTN__SOFTMAX_ONLY);
    unsigned shared = canonical->backward ? attn__sums_shared(canonical) : 0;
    bool one = canonical->query.size <= BLOCK && canonical->key.size <= BLOCK && !shared;
    if (unusual)
        return unusual;
    if (p->nrelatives)
        return "does not support relative tables";
    if (canonical->backward && p->dtype == ATTN_BF16 && !one)
        return "does not support bf16 gradients of several blocks";
    if (attn__is_packed(canonical) && (shared & ATTN_WANT_DQ))
        return "does not support dq of broadcast packed queries";
    double channels = (double)canonical->contract.size + (double)canonical->value.size;
    return p->dtype == ATTN_BF16 && channels * MOST_QUERIES > most ? "needs many gigabytes of workspace" : NULL;
}

/* Estimates the time. It is longer with bands, because bands leave large blocks half empty. Without AMX it is short
 * only if a head fills the L2 cache, because scores are stored after each chunk. On AMX it is short for smaller heads
 * too, because the vector units store scores during the products. */
static double cost(const attn__canonical *canonical)
{
    enum { PLAIN = 641, PLAIN_BACKWARD = 512, STREAM = 512, STREAM_BACKWARD = 320, ONE = 256, SHORT = 128 };
    double pairs = (double)canonical->batch.size * (double)canonical->query.size * (double)canonical->key.size;
    int64_t channels = canonical->contract.size + canonical->value.size, least;
    int64_t queries = canonical->query.size, keys = canonical->key.size;
    bool back = canonical->backward, stream = uses_amx(canonical);
    bool one = attn__max(queries, keys) <= BLOCK && attn__min(queries, keys) >= SHORT;
    if (stream)
        least = one ? ONE : back ? STREAM_BACKWARD : STREAM;
    else
        least = back ? PLAIN_BACKWARD : PLAIN;
    double each = back && stream && channels >= STREAM_BACKWARD ? 0.8 : channels >= least ? 0.98 : 1.1;
    return pairs * (double)channels * each * (canonical->problem.nbands ? 1.2 : 1);
}

static attn_status plan(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe)
{
    wide_plan *p = attn__alloc_zero(context, sizeof *p);
    attn__arena arena = {0};
    state unused = {0};
    if (!p)
        return ATTN_ERROR_MEMORY;
    p->tiles = attn__tile_plan_of(canonical, canonical->isa);
    p->single = is_single(canonical, &p->tiles.visible);
    p->hides = p->tiles.masks || canonical->has_bias || canonical->has_dropout;
    choose_kernels(p, canonical);
    choose_blocks(p, canonical);
    (void)attn__arena_take(&arena, 1, sizeof(state));
    take_state(&unused, p, canonical, &arena);
    p->bytes = arena.used;
    recipe->data = p;
    recipe->workspace = attn__size_mul((size_t)canonical->threads, p->bytes);
    if (canonical->backward)
        recipe->workspace = attn__size_add(recipe->workspace, attn__slots_make(canonical, NULL).bytes);
    const char *terms = p->kernels.terms == 1 ? ", 1 bf16 term" : p->kernels.terms ? ", 3 bf16 terms" : "";
    snprintf(recipe->text, sizeof recipe->text, "%s%s, blocks of %d queries x %d keys, %d channels a step",
             attn__isa_text(*terms ? canonical->isa : p->kernels.tile->isa), terms, (int)p->queries, (int)p->keys,
             (int)p->kernels.chunk);
    return ATTN_OK;
}

static void apply(const attn__canonical *canonical, const attn__recipe *recipe, const attn__execution *arrays,
                  void *workspace)
{
    const wide_plan *p = recipe->data;
    job j = {.canonical = canonical, .plan = p, .arrays = arrays, .workspace = workspace};
    start_threads(&j);
    if (!canonical->backward) {
        j.blocks = attn__ceil_div(canonical->query.size, p->queries);
        attn__parallel_items(canonical->threads, canonical->batch.size * j.blocks, run_item, &j);
        return;
    }
    j.broadcast = attn__sums_shared(canonical);
    j.adds = canonical->problem.accumulate ? ATTN__WANT_OWN : j.broadcast;
    j.slots = attn__slots_make(canonical, j.workspace + (size_t)canonical->threads * p->bytes);
    attn__parallel_items(canonical->threads, j.slots.n, run_slot, &j);
    attn__slots_store(&j.slots, arrays);
}

/* Returns the gradients to which several blocks of queries (dk, dv), blocks of keys (dq) or batch indices add. */
static unsigned adds_often(const attn__canonical *canonical)
{
    return attn__sums_shared(canonical) | (canonical->query.size > BLOCK ? ATTN_WANT_DK | ATTN_WANT_DV : 0u) |
           (canonical->key.size > BLOCK ? ATTN_WANT_DQ : 0u);
}

const attn__solver attn__solver_wide = {.name = "wide",
                                        .refuse = refuse,
                                        .cost = cost,
                                        .adds_often = adds_often,
                                        .plan = plan,
                                        .apply = apply,
                                        .extras = ATTN__PACKED | ATTN__SOFTCAP | ATTN__SINKS | ATTN__DLSE |
                                                  ATTN__BIAS_MEETS | ATTN__BLOCKS};
