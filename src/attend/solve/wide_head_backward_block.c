/* SPDX-License-Identifier: MIT
 *
 * wide_head_backward_block.c - one block of queries against one of keys, backwards over wide heads.
 */
#include "attend/solve/wide_head_backward.h"

#include "base/integers.h"

#include <string.h>

/* Rows and where they are copied to. */
typedef struct side {
    attn__wide_head_rows of;
    float *panel;
} side;

size_t attn__wide_head_block_place(const attn__wide_head_backward_plan *w, void *memory, attn__wide_head_block *x)
{
    const attn__flash_backward_plan *p = &w->back;
    int64_t rows = p->tile_q > p->block_k ? p->tile_q : p->block_k;
    size_t used = attn__flash_backward_scratch_place(p, memory, &x->run.m);
    char *base = memory;
    float **const floats[] = {&x->o_rows, &x->ones, &x->scale};
    const int64_t counts[] = {p->tile_q * w->chunk, rows, rows};
    for (int i = 0; i < 3; i++) {
        *floats[i] = base ? (float *)(void *)(base + used) : NULL;
        used += ((size_t)counts[i] * sizeof(float) + 63) / 64 * 64;
    }
    attn__arena arena = {base, used};
    x->table = attn__arena_take(&arena, w->chunk, sizeof(int64_t));
    x->stream.amx = w->amx;
    if (w->amx) {
        attn__wide_head_stream_place(&x->stream, &arena, rows);
        x->dots = attn__arena_take(&arena, p->tile_q * ATTN__BF16X3_SIDE, sizeof(float));
    }
    return arena.used;
}

static bool copy(attn__wide_head_block *x, const side *s, int64_t first, int64_t n)
{
    return attn__wide_head_copy(&(attn__wide_head_chunk){s->of, first, n}, x->wide_head->back.lanes,
                                &(attn__wide_head_panel){s->panel, x->wide_head->chunk, x->table});
}

static void want(attn__wide_head_block *x, const side *s, int64_t first, int64_t channels)
{
    int64_t n = attn__least(channels - first, x->wide_head->chunk);
    attn__wide_head_prefetch(&x->prefetch, &(attn__wide_head_chunk){s->of, first, n});
}

/* ---------------------------------------------------------------------------------------------- scores */

/* out[queries, keys] (+)= the chunk's part of rows . keys, with the keys transposed to `panel`. */
static void add_scores(attn__wide_head_block *x, const side *queries, const side *keys, int64_t first, int64_t channels,
                       float factor, float *out)
{
    const attn__flash_backward_plan *p = &x->wide_head->back;
    int64_t n = attn__least(channels - first, x->wide_head->chunk);
    int64_t columns = (keys->of.rows + p->tile->lanes - 1) / p->tile->lanes * p->tile->lanes;
    copy(x, queries, first, n);
    attn__wide_head_gather(&(attn__wide_head_chunk){keys->of, first, n}, p->lanes,
                           &(attn__wide_head_panel){keys->panel, p->strip, x->table}, factor);
    attn__prefetch_clear(&x->prefetch);
    want(x, queries, first + n, channels);
    want(x, keys, first + n, channels);
    attn__prefetch_divide(&x->prefetch, attn__wide_head_portions(p->tile, queries->of.rows, columns, n));
    attn__gemm_tile_args args = {.m = queries->of.rows,
                                 .n = columns,
                                 .k = n,
                                 .a = queries->panel,
                                 .am = x->wide_head->chunk,
                                 .ak = 1,
                                 .b = keys->panel,
                                 .ldb = p->strip,
                                 .c = out,
                                 .ldc = p->strip,
                                 .accumulate = first > 0};
    attn__wide_head_multiply(p->tile, &args, &x->prefetch);
}

/* One of the two products of scores. */
typedef struct scoring {
    attn__wide_head_block *x;
    side queries, keys;
    int64_t channels;
    float factor, *out;
} scoring;

static void score_chunk(void *user, int64_t first, int64_t n)
{
    const scoring *s = user;
    (void)n;
    add_scores(s->x, &s->queries, &s->keys, first, s->channels, s->factor, s->out);
}

/* `with` NULL: no sums for delta. */
static void score_in_stream(scoring *s, const side *with)
{
    attn__wide_head_block *x = s->x;
    attn__wide_head_scores scores = {.a = s->queries.of,
                                     .b = s->keys.of,
                                     .factor = s->factor,
                                     .channels = s->channels,
                                     .dots = x->dots,
                                     .strips = 1,
                                     .plain = score_chunk,
                                     .user = s};
    scores.strip[0] =
        (attn__wide_head_strip){0, attn__pieces(s->keys.of.rows, ATTN__BF16X3_SIDE), s->out, x->wide_head->back.strip};
    if (with)
        scores.with = with->of;
    attn__wide_head_stream_scores(&x->stream, &scores);
}

static void add_deltas(attn__wide_head_block *x, const scoring *s, const side *o)
{
    attn__flash_backward_run *run = &x->run;
    for (int64_t first = 0, n; first < s->channels; first += n) {
        n = attn__least(s->channels - first, x->wide_head->chunk);
        score_chunk((void *)(uintptr_t)s, first, n);
        copy(x, o, first, n);
        for (int64_t r = 0; r < run->tile_n; r++)
            run->m.delta[r] += run->plan->backward->dot(s->queries.panel + r * x->wide_head->chunk,
                                                        o->panel + r * x->wide_head->chunk, n);
    }
}

static void add_deltas_in_stream(attn__wide_head_block *x, scoring *s, const side *o)
{
    attn__flash_backward_run *run = &x->run;
    memset(x->dots, 0, (size_t)(run->tile_n * ATTN__BF16X3_SIDE) * sizeof(float));
    score_in_stream(s, o);
    for (int64_t i = 0; i < run->tile_n * ATTN__BF16X3_SIDE; i++)
        run->m.delta[i / ATTN__BF16X3_SIDE] += x->dots[i];
}

static void score(attn__wide_head_block *x)
{
    attn__flash_backward_run *run = &x->run;
    const attn__flash_backward_plan *p = run->plan;
    scoring s = {x,
                 {{&x->q, run->arrays->q, run->m.query_at.q, run->tile_n}, run->m.q},
                 {{&x->k, run->arrays->k, run->m.key_at.k, run->block_n}, run->m.keys.kt},
                 p->d,
                 p->score_scale,
                 run->m.s};
    if (x->wide_head->amx)
        score_in_stream(&s, NULL);
    for (int64_t first = 0; first < p->d && !x->wide_head->amx; first += x->wide_head->chunk)
        score_chunk(&s, first, x->wide_head->chunk);
    if (!(run->want & (ATTN__FLASH_BACKWARD_Q | ATTN__FLASH_BACKWARD_K | ATTN__FLASH_BACKWARD_BIAS)))
        return;
    scoring ds = {x,
                  {{&x->dout, run->arrays->dout, run->m.query_at.dout, run->tile_n}, run->m.dout},
                  {{&x->v, run->arrays->v, run->m.key_at.v, run->block_n}, run->m.keys.vt},
                  p->dv,
                  1.0f,
                  run->m.ds};
    side o = {{&x->o, run->arrays->o, run->m.query_at.o, run->tile_n}, x->o_rows};
    memset(run->m.delta, 0, (size_t)run->tile_n * sizeof(float));
    if (x->wide_head->amx)
        add_deltas_in_stream(x, &ds, &o);
    else
        add_deltas(x, &ds, &o);
}

/* --------------------------------------------------------------------------------------------- weights */

/* Outside of rows [row, row + t->rows) and the first t->keys keys, nothing is attended. */
static void clear_outside(const attn__wide_head_block *x, const attn__softmax_backward_args *t, int64_t row)
{
    const attn__flash_backward_run *run = &x->run;
    int64_t ld = run->plan->strip;
    for (int64_t r = 0; r < run->tile_n; r++) {
        int64_t from = r < row || r >= row + t->rows ? 0 : t->keys;
        memset(run->m.s + r * ld + from, 0, (size_t)(ld - from) * sizeof(float));
        memset(run->m.ds + r * ld + from, 0, (size_t)(ld - from) * sizeof(float));
        memset(run->m.alive + r * ld + from, 0, (size_t)(ld - from));
    }
}

static void weigh(attn__wide_head_block *x)
{
    attn__flash_backward_run *run = &x->run;
    attn__softmax_backward_args t = {0};
    int64_t row = 0;
    run->keys_finite = !x->wide_head->may_hide; /* pairs that count are noted wherever some may not */
    run->queries_finite = true;
    for (int64_t r = 0; r < run->tile_n; r++)
        attn__flash_backward_set_lse(run, r, ((const float *)run->arrays->lse)[run->m.query_at.lse[r]]);
    if (attn__flash_backward_describe(run, 0, run->block_n, &t, &row))
        run->plan->backward->weights(&t);
    clear_outside(x, &t, row);
    if ((run->want & ATTN__FLASH_BACKWARD_BIAS) && t.rows)
        attn__flash_backward_add_dbias(run, 0, row, t.rows, t.keys);
}

/* ------------------------------------------------------------------------------------------- gradients */

/* One gradient of a chunk: out[i, c] = sum over j of weight(i, j) in[j, c]. */
typedef struct gradient {
    side in, out;
    int64_t channels;
    const float *weight;
    bool across;    /* weight(i, j) = weight[j * strip + i]: the sum runs over queries */
    uint8_t counts; /* the bit of `alive` that tells which pairs take part */
    const float *factor;
} gradient;

/* Masked and dropped pairs take no part: where something is not finite, 0 times it would not be 0. */
static void multiply_carefully(const attn__wide_head_block *x, const gradient *g, int64_t n)
{
    int64_t ld = x->wide_head->back.strip, chunk = x->wide_head->chunk;
    memset(g->out.panel, 0, (size_t)(g->out.of.rows * chunk) * sizeof(float));
    for (int64_t i = 0; i < g->out.of.rows; i++) {
        for (int64_t j = 0; j < g->in.of.rows; j++) {
            int64_t at = g->across ? j * ld + i : i * ld + j;
            for (int64_t c = 0; c < n && (x->run.m.alive[at] & g->counts); c++)
                g->out.panel[i * chunk + c] += g->weight[at] * g->in.panel[j * chunk + c];
        }
    }
}

typedef struct adding {
    attn__wide_head_block *x;
    const gradient *g;
} adding;

static void add_chunk(void *user, int64_t first, int64_t n)
{
    const adding *a = user;
    attn__wide_head_block *x = a->x;
    const gradient *g = a->g;
    const attn__wide_head_backward_plan *w = x->wide_head;
    const attn__flash_backward_plan *p = &w->back;
    int64_t lanes = p->tile->lanes, columns = (n + lanes - 1) / lanes * lanes;
    attn__wide_head_sum sum = {p->backward, w->sums, w->once ? NULL : x->ones, g->factor};
    bool finite = copy(x, &g->in, first, n);
    attn__prefetch_clear(&x->prefetch);
    attn__wide_head_chunk out = {g->out.of, first, n};
    attn__wide_head_prefetch(&x->prefetch, &out);
    want(x, &g->in, first + n, g->channels);
    attn__prefetch_divide(&x->prefetch, attn__wide_head_portions(p->tile, g->out.of.rows, columns, g->in.of.rows));
    attn__gemm_tile_args args = {.m = g->out.of.rows,
                                 .n = columns,
                                 .k = g->in.of.rows,
                                 .a = g->weight,
                                 .am = g->across ? 1 : p->strip,
                                 .ak = g->across ? p->strip : 1,
                                 .b = g->in.panel,
                                 .ldb = w->chunk,
                                 .c = g->out.panel,
                                 .ldc = w->chunk};
    if (finite || !w->may_hide)
        attn__wide_head_multiply(p->tile, &args, &x->prefetch);
    else
        multiply_carefully(x, g, n);
    attn__wide_head_store(&out, &sum, g->out.panel, w->chunk);
}

/* False if nothing has been done, because some weight is not finite. */
static bool add_in_stream(adding *a)
{
    const gradient *g = a->g;
    attn__wide_head_stream *stream = &a->x->stream;
    int64_t ld = a->x->wide_head->back.strip;
    attn__wide_head_products products = {.in = g->in.of,
                                         .out = g->out.of,
                                         .channels = g->channels,
                                         .factor = g->factor,
                                         .was = a->x->wide_head->once ? NULL : a->x->ones,
                                         .plain = add_chunk,
                                         .user = a};
    bool finite = g->across
                      ? attn__wide_head_stream_weights(stream, g->weight, ld, g->in.of.rows, 0, g->out.of.rows)
                      : attn__wide_head_stream_weights_along(stream, g->weight, ld, g->in.of.rows, g->out.of.rows);
    if (finite)
        attn__wide_head_stream_products(stream, &products);
    return finite;
}

static void add_gradient(attn__wide_head_block *x, const gradient *g)
{
    adding a = {x, g};
    if (x->wide_head->amx && add_in_stream(&a))
        return;
    for (int64_t first = 0; first < g->channels; first += x->wide_head->chunk)
        add_chunk(&a, first, attn__least(g->channels - first, x->wide_head->chunk));
}

static void add_gradients(attn__wide_head_block *x)
{
    attn__flash_backward_run *run = &x->run;
    const attn__canonical *canonical = run->canonical;
    const attn__flash_backward_plan *p = run->plan;
    const attn_arrays *a = run->arrays;
    attn__flash_backward_scratch *m = &run->m;
    int64_t nq = run->tile_n, nk = run->block_n;
    if (run->want & ATTN__FLASH_BACKWARD_V) {
        attn__flash_backward_walk(&canonical->key, ATTN__STRIDE(dim.dv), run->block, nk, run->item.at.dv, m->key_at.dv);
        add_gradient(x, &(gradient){{{&x->dout, a->dout, m->query_at.dout, nq}, m->dout},
                                    {{&x->dv, a->dv, m->key_at.dv, nk}, m->keys.dv},
                                    p->dv,
                                    m->s,
                                    true,
                                    2,
                                    x->ones});
    }
    if (run->want & ATTN__FLASH_BACKWARD_K) {
        attn__flash_backward_walk(&canonical->key, ATTN__STRIDE(dim.dk), run->block, nk, run->item.at.dk, m->key_at.dk);
        add_gradient(x, &(gradient){{{&x->q, a->q, m->query_at.q, nq}, m->q},
                                    {{&x->dk, a->dk, m->key_at.dk, nk}, m->keys.dk},
                                    p->d,
                                    m->ds,
                                    true,
                                    1,
                                    x->scale});
    }
    if (run->want & ATTN__FLASH_BACKWARD_Q) {
        attn__flash_backward_walk(&canonical->query, ATTN__STRIDE(dim.dq), run->tile, nq, run->item.at.dq,
                                  m->query_at.dq);
        add_gradient(x, &(gradient){{{&x->k, a->k, m->key_at.k, nk}, m->keys.k},
                                    {{&x->dq, a->dq, m->query_at.dq, nq}, m->dq},
                                    p->d,
                                    m->ds,
                                    false,
                                    1,
                                    x->scale});
    }
}

void attn__wide_head_block_run(attn__wide_head_block *x, int64_t query_block, int64_t key_block)
{
    attn__flash_backward_run *run = &x->run;
    const attn__flash_backward_plan *p = run->plan;
    run->tile = query_block * p->tile_q;
    run->block = key_block * p->chunk_k;
    run->tile_n = attn__least(p->tile_q, p->nq - run->tile);
    run->block_n = attn__least(p->chunk_k, p->nk - run->block);
    if (run->tile_n <= 0 || run->block_n <= 0)
        return;
    attn__flash_backward_limits(run);
    if (!x->wide_head->once && !attn__flash_backward_tile_is_needed(run))
        return;
    attn__flash_backward_locate_keys(run);
    attn__flash_backward_locate_queries(run);
    score(x);
    weigh(x);
    add_gradients(x);
}
