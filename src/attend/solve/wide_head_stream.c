/* SPDX-License-Identifier: MIT
 *
 * wide_head_stream.c - AMX products over chunks of channels, with packing and prefetching during them; see
 * wide_head_stream.h.
 */
#include "attend/solve/wide_head_stream.h"

#include "base/integers.h"

enum {
    SIDE = ATTN__BF16X3_SIDE,
    DEPTH = ATTN__BF16X3_DEPTH,
    CHUNK = ATTN__FEED_COLUMNS,
    PARTS = ATTN__BF16X3_F32,
    PORTIONS = 2 * PARTS /* of a step of a square */
};
_Static_assert((int)CHUNK == (int)ATTN__WIDE_HEAD_CHUNK, "what is left to the vector units has panels of a chunk");

void attn__wide_head_stream_place(attn__wide_head_stream *s, attn__arena *arena, int64_t rows)
{
    int64_t side = attn__round_up(rows, DEPTH), chunk = side * CHUNK * PARTS;
    s->weights = attn__bf16x3_packed(NULL, side / DEPTH, PARTS);
    s->tiles[0][0] = attn__arena_take(arena, chunk, sizeof(uint16_t));
    s->tiles[1][0] = attn__arena_take(arena, chunk, sizeof(uint16_t));
    /* Scores have two operands to split; products one, and weights and sums. */
    attn__arena both = *arena;
    s->tiles[0][1] = attn__arena_take(arena, chunk, sizeof(uint16_t));
    s->tiles[1][1] = attn__arena_take(arena, chunk, sizeof(uint16_t));
    s->weights.data = attn__arena_take(&both, side * side * PARTS, sizeof(uint16_t));
    s->sums[0] = attn__arena_take(&both, side * CHUNK, sizeof(float));
    s->sums[1] = attn__arena_take(&both, side * CHUNK, sizeof(float));
    arena->used = both.used > arena->used ? both.used : arena->used;
}

/* As measured: 64 gain an eighth, 65, which fill their squares badly, lose 4 %, and 72 gain 3 to 10 %. */
bool attn__wide_head_stream_pays(const attn__canonical *canonical)
{
    enum { LEAST = 64, SQUARE = 2 * SIDE };
    int64_t queries = canonical->query.size, keys = canonical->key.size;
    double whole = (double)attn__round_up(queries, SQUARE) * (double)attn__round_up(keys, SQUARE);
    return attn__bf16x3_for(canonical->isa) && attn__least(queries, keys) >= LEAST &&
           whole <= 1.8 * (double)queries * (double)keys;
}

bool attn__wide_head_streams(const attn__wide_head_operand *x, int64_t channels)
{
    return x->dtype == ATTN_F32 && channels % DEPTH == 0 && x->run % DEPTH == 0;
}

/* Columns [first, ..) of the rows, at most a chunk. */
static int64_t steps_at(const attn__wide_head_rows *rows, int64_t first, int64_t channels, const float **at)
{
    int64_t steps = attn__least(channels - first, CHUNK) / DEPTH;
    for (int64_t i = 0; i < steps; i++)
        at[i] = attn__wide_head_at(rows->operand, rows->base, first + i * DEPTH);
    return steps;
}

static attn__feed_side side_of(const attn__wide_head_rows *rows, attn__feed_kind kind, int64_t first, int64_t channels,
                               uint16_t *to)
{
    attn__feed_side s = {.kind = kind, .row_at = rows->at, .rows = rows->rows, .factor = 1.0f};
    s.steps = steps_at(rows, first, channels, s.at);
    s.to = attn__bf16x3_packed(to, kind == ATTN__FEED_PAIRS ? attn__pieces(rows->rows, DEPTH) : s.steps, PARTS);
    return s;
}

/* ------------------------------------------------------------------------------------------------- scores */

/* The two operands of the chunk from `first` on; none after the last one. */
static int score_sides(const attn__wide_head_stream *s, const attn__wide_head_scores *x, int64_t first,
                       attn__feed_side *side)
{
    if (first >= x->channels)
        return 0;
    int into = (int)(first / CHUNK % 2);
    side[0] = side_of(&x->a, ATTN__FEED_ROWS, first, x->channels, s->tiles[into][0]);
    side[1] = side_of(&x->b, ATTN__FEED_TRANSPOSED, first, x->channels, s->tiles[into][1]);
    side[1].factor = x->factor;
    if (x->with.rows) {
        steps_at(&x->with, first, x->channels, side[0].with);
        side[0].with_at = x->with.at;
        side[0].dots = x->dots;
    }
    return 2;
}

static void feed_scores(attn__wide_head_stream *s, const attn__wide_head_scores *x, int64_t first, int64_t portions)
{
    s->feed.sides = score_sides(s, x, first, s->feed.side);
    s->feed.nexts = score_sides(s, x, first + CHUNK, s->feed.next);
    s->feed.drain.rows = 0;
    attn__bf16x3_feed_begin(&s->feed, portions);
}

static int64_t score_portions(const attn__wide_head_scores *x, int64_t steps)
{
    int64_t columns = 0;
    for (int i = 0; i < x->strips; i++)
        columns += attn__pieces(x->strip[i].blocks, 2);
    return attn__pieces(x->a.rows, 2 * SIDE) * columns * steps * PORTIONS;
}

static void multiply_scores(attn__wide_head_stream *s, const attn__wide_head_scores *x, int64_t first, int64_t steps)
{
    int at = (int)(first / CHUNK % 2);
    attn__bf16x3_side b = attn__bf16x3_packed(s->tiles[at][1], steps, PARTS);
    attn__bf16x3_args args = {.m = attn__pieces(x->a.rows, SIDE),
                              .k = steps,
                              .parts = PARTS,
                              .a = attn__bf16x3_packed(s->tiles[at][0], steps, PARTS),
                              .accumulate = first > 0};
    for (int i = 0; i < x->strips; i++) {
        args.b = b;
        args.b.data += x->strip[i].block * b.block;
        args.n = x->strip[i].blocks;
        args.c = x->strip[i].c;
        args.ldc = x->strip[i].ldc;
        s->amx->run_interleaved(&args, &s->feed.interleaved);
    }
}

void attn__wide_head_stream_scores(attn__wide_head_stream *s, const attn__wide_head_scores *x)
{
    feed_scores(s, x, 0, 0);
    bool finite = attn__bf16x3_feed_end(&s->feed);
    for (int64_t first = 0; first < x->channels; first += CHUNK) {
        int64_t n = attn__least(x->channels - first, CHUNK);
        feed_scores(s, x, first + CHUNK, score_portions(x, n / DEPTH));
        if (finite)
            multiply_scores(s, x, first, n / DEPTH);
        bool next = attn__bf16x3_feed_end(&s->feed);
        if (!finite)
            x->plain(x->user, first, n);
        finite = next;
    }
}

/* ----------------------------------------------------------------------------------------------- products */

static int product_sides(const attn__wide_head_stream *s, const attn__wide_head_products *x, int64_t first,
                         attn__feed_side *side)
{
    if (first >= x->channels)
        return 0;
    *side = side_of(&x->in, ATTN__FEED_PAIRS, first, x->channels, s->tiles[first / CHUNK % 2][0]);
    return 1;
}

/* `drained`: the chunk whose sums wait, or below 0. */
static void feed_products(attn__wide_head_stream *s, const attn__wide_head_products *x, int64_t first, int64_t drained,
                          int64_t portions)
{
    attn__feed_pending *d = &s->feed.drain;
    s->feed.sides = product_sides(s, x, first, s->feed.side);
    s->feed.nexts = product_sides(s, x, first + CHUNK, s->feed.next);
    *d = (attn__feed_pending){
        .ld = CHUNK, .row_at = x->out.at, .factor = x->factor + x->first, .was = x->was ? x->was + x->first : NULL};
    if (drained >= 0) {
        const float *at[ATTN__FEED_STEPS];
        d->rows = x->out.rows;
        d->from = s->sums[drained / CHUNK % 2];
        d->steps = steps_at(&x->out, drained, x->channels, at);
        for (int64_t i = 0; i < d->steps; i++)
            d->at[i] = (float *)(uintptr_t)at[i];
        int64_t after = drained + CHUNK < x->channels ? steps_at(&x->out, drained + CHUNK, x->channels, at) : 0;
        for (int64_t i = 0; i < after; i++)
            d->next[i] = (float *)(uintptr_t)at[i];
    }
    attn__bf16x3_feed_begin(&s->feed, portions);
}

static void multiply_chunk(attn__wide_head_stream *s, const attn__wide_head_products *x, int64_t first, int64_t columns)
{
    int at = (int)(first / CHUNK % 2);
    int64_t steps = attn__pieces(x->in.rows, DEPTH);
    attn__bf16x3_args args = {.m = attn__pieces(x->out.rows, SIDE),
                              .n = columns / SIDE,
                              .k = steps,
                              .parts = PARTS,
                              .a = s->weights,
                              .b = attn__bf16x3_packed(s->tiles[at][0], steps, PARTS),
                              .c = s->sums[at],
                              .ldc = CHUNK};
    args.a.data += x->first / SIDE * args.a.block;
    s->amx->run_interleaved(&args, &s->feed.interleaved);
}

void attn__wide_head_stream_products(attn__wide_head_stream *s, const attn__wide_head_products *x)
{
    int64_t waiting = -1, squares = attn__pieces(x->out.rows, 2 * SIDE) * attn__pieces(x->in.rows, DEPTH);
    feed_products(s, x, 0, waiting, 0);
    bool finite = attn__bf16x3_feed_end(&s->feed);
    for (int64_t first = 0; first < x->channels; first += CHUNK) {
        int64_t n = attn__least(x->channels - first, CHUNK);
        feed_products(s, x, first + CHUNK, waiting, squares * n / DEPTH * PORTIONS);
        if (finite)
            multiply_chunk(s, x, first, n);
        bool next = attn__bf16x3_feed_end(&s->feed);
        if (!finite)
            x->plain(x->user, first, n);
        waiting = finite ? first : -1;
        finite = next;
    }
    feed_products(s, x, x->channels, waiting, 0);
    attn__bf16x3_feed_end(&s->feed);
}

bool attn__wide_head_stream_weights(attn__wide_head_stream *s, const float *x, int64_t ld, int64_t depth, int64_t first,
                                    int64_t rows)
{
    attn__bf16x3_side to = s->weights;
    to.data += first / SIDE * to.block;
    attn__bf16x3_rows from = {
        .data = x, .dtype = ATTN_F32, .ld = ld, .rows = depth, .columns = rows, .factor = 1.0f, .parts = PARTS};
    bool finite = s->amx->split_pairs(&from, &to);
    s->amx->transpose(to.data, attn__pieces(rows, SIDE) * to.block / ATTN__BF16X3_TILE);
    return finite;
}

bool attn__wide_head_stream_weights_along(attn__wide_head_stream *s, const float *x, int64_t ld, int64_t depth,
                                          int64_t rows)
{
    attn__bf16x3_rows from = {
        .data = x, .dtype = ATTN_F32, .ld = ld, .rows = rows, .columns = depth, .factor = 1.0f, .parts = PARTS};
    return s->amx->split_rows(&from, &s->weights);
}
