/* SPDX-License-Identifier: MIT
 *
 * wide_backward.c - one block of queries against one of keys, backwards over wide heads, and the order of blocks.
 */
#include "attend/wide/wide_backward.h"

#include "attend/task/offsets.h"
#include "base/integers.h"
#include "base/parallel.h"

#include <string.h>

typedef struct work {
    const attn__task *task;
    const attn__wide_back *wide;
    const attn_arrays *arrays;
    char *workspace;
    size_t each; /* bytes of one thread */
    int64_t step;
} work;

/* The tile at hand. */
typedef struct block {
    attn__back_run run;
    const attn__wide_back *wide;
    attn__wide_operand q, k, v, o, dout, dq, dk, dv;
    float *o_rows;           /* [tile_q][chunk] */
    float *ones, *scale;     /* a factor for each row of a tile */
    int64_t *table;
    attn__ahead ahead;
    attn__wide_stream stream;
    float *dots; /* with the matrix unit: delta's 16 sums of each query */
} block;

/* One operand's rows and where they are copied to. */
typedef struct side {
    const attn__wide_operand *operand;
    const void *base;
    const int64_t *at;
    int64_t rows;
    float *panel;
} side;

static size_t place(const attn__wide_back *w, void *memory, block *x)
{
    const attn__back_plan *p = &w->back;
    int64_t rows = p->tile_q > p->block_k ? p->tile_q : p->block_k;
    size_t used = attn__back_scratch_place(p, memory, &x->run.m);
    char *base = memory;
    float **const floats[] = {&x->o_rows, &x->ones, &x->scale};
    const int64_t counts[] = {p->tile_q * w->chunk, rows, rows};
    for (int i = 0; i < 3; i++) {
        *floats[i] = base ? (float *)(void *)(base + used) : NULL;
        used += ((size_t)counts[i] * sizeof(float) + 63) / 64 * 64;
    }
    attn__pile pile = {base, used};
    x->table = attn__pile_take(&pile, w->chunk, sizeof(int64_t));
    x->stream.unit = w->unit;
    if (w->unit) {
        attn__wide_stream_place(&x->stream, &pile, rows);
        x->dots = attn__pile_take(&pile, p->tile_q * ATTN__PARTS_SIDE, sizeof(float));
    }
    return pile.used;
}

size_t attn__wide_back_bytes(const attn__wide_back *wide, const attn__task *task)
{
    (void)task;
    block unused;
    return place(wide, NULL, &unused);
}

static bool copy(block *x, const side *s, int64_t first, int64_t n)
{
    return attn__wide_copy(s->operand, x->wide->back.lanes, s->base, s->at, s->rows, first, n, s->panel,
                           x->wide->chunk, x->table);
}

static void want(block *x, const side *s, int64_t first, int64_t channels)
{
    if (first < channels)
        attn__wide_want(&x->ahead, s->operand, s->base, s->at, s->rows, first, attn__least(channels - first, x->wide->chunk));
}

/* ---------------------------------------------------------------------------------------------- scores */

/* out[queries, keys] (+)= the chunk's part of rows . keys, with the keys transposed to `panel`. */
static void add_scores(block *x, const side *queries, const side *keys, int64_t first, int64_t channels, float factor,
                       float *out)
{
    const attn__back_plan *p = &x->wide->back;
    int64_t n = attn__least(channels - first, x->wide->chunk);
    int64_t columns = (keys->rows + p->tile->lanes - 1) / p->tile->lanes * p->tile->lanes;
    copy(x, queries, first, n);
    attn__wide_gather(keys->operand, p->lanes, keys->base, keys->at, keys->rows, first, n, keys->panel, p->strip,
                      factor, x->table);
    attn__ahead_begin(&x->ahead);
    want(x, queries, first + n, channels);
    want(x, keys, first + n, channels);
    attn__ahead_divide(&x->ahead, attn__wide_portions(p->tile, queries->rows, columns, n));
    attn__tile_args args = {.m = queries->rows, .n = columns, .k = n, .a = queries->panel, .am = x->wide->chunk,
                            .ak = 1, .b = keys->panel, .ldb = p->strip, .c = out, .ldc = p->strip,
                            .accumulate = first > 0};
    attn__wide_multiply(p->tile, &args, &x->ahead);
}

/* One of the two products of scores. */
typedef struct scoring {
    block *x;
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

static attn__wide_rows rows_of(const side *s)
{
    return (attn__wide_rows){s->operand, s->base, s->at, s->rows};
}

/* `with` NULL: no sums for delta. */
static void score_in_stream(scoring *s, const side *with)
{
    block *x = s->x;
    attn__wide_scores scores = {.a = rows_of(&s->queries), .b = rows_of(&s->keys), .factor = s->factor,
                                .channels = s->channels, .dots = x->dots, .strips = 1, .plain = score_chunk, .user = s};
    scores.strip[0] = (attn__wide_strip){0, attn__pieces(s->keys.rows, ATTN__PARTS_SIDE), s->out, x->wide->back.strip};
    if (with)
        scores.with = rows_of(with);
    attn__wide_stream_scores(&x->stream, &scores);
}

static void add_deltas(block *x, const scoring *s, const side *o)
{
    attn__back_run *run = &x->run;
    for (int64_t first = 0, n; first < s->channels; first += n) {
        n = attn__least(s->channels - first, x->wide->chunk);
        score_chunk((void *)(uintptr_t)s, first, n);
        copy(x, o, first, n);
        for (int64_t r = 0; r < run->tile_n; r++)
            run->m.delta[r] += run->plan->backward->dot(s->queries.panel + r * x->wide->chunk,
                                                        o->panel + r * x->wide->chunk, n);
    }
}

static void add_deltas_in_stream(block *x, scoring *s, const side *o)
{
    attn__back_run *run = &x->run;
    memset(x->dots, 0, (size_t)(run->tile_n * ATTN__PARTS_SIDE) * sizeof(float));
    score_in_stream(s, o);
    for (int64_t i = 0; i < run->tile_n * ATTN__PARTS_SIDE; i++)
        run->m.delta[i / ATTN__PARTS_SIDE] += x->dots[i];
}

static void score(block *x)
{
    attn__back_run *run = &x->run;
    const attn__back_plan *p = run->plan;
    scoring s = {x, {&x->q, run->arrays->q, run->m.q_at, run->tile_n, run->m.q},
                 {&x->k, run->arrays->k, run->m.k_at, run->block_n, run->m.kt}, p->d, p->score_scale, run->m.s};
    if (x->wide->unit)
        score_in_stream(&s, NULL);
    for (int64_t first = 0; first < p->d && !x->wide->unit; first += x->wide->chunk)
        score_chunk(&s, first, x->wide->chunk);
    if (!(run->want & (ATTN__BACK_Q | ATTN__BACK_K | ATTN__BACK_BIAS)))
        return;
    scoring ds = {x, {&x->dout, run->arrays->dout, run->m.dout_at, run->tile_n, run->m.dout},
                  {&x->v, run->arrays->v, run->m.v_at, run->block_n, run->m.vt}, p->dv, 1.0f, run->m.ds};
    side o = {&x->o, run->arrays->o, run->m.o_at, run->tile_n, x->o_rows};
    memset(run->m.delta, 0, (size_t)run->tile_n * sizeof(float));
    if (x->wide->unit)
        add_deltas_in_stream(x, &ds, &o);
    else
        add_deltas(x, &ds, &o);
}

/* --------------------------------------------------------------------------------------------- weights */

/* Outside of rows [row, row + t->rows) and the first t->keys keys, nothing is attended. */
static void clear_outside(const block *x, const attn__weights_args *t, int64_t row)
{
    const attn__back_run *run = &x->run;
    int64_t ld = run->plan->strip;
    for (int64_t r = 0; r < run->tile_n; r++) {
        int64_t from = r < row || r >= row + t->rows ? 0 : t->keys;
        memset(run->m.s + r * ld + from, 0, (size_t)(ld - from) * sizeof(float));
        memset(run->m.ds + r * ld + from, 0, (size_t)(ld - from) * sizeof(float));
        memset(run->m.alive + r * ld + from, 0, (size_t)(ld - from));
    }
}

static void weigh(block *x)
{
    attn__back_run *run = &x->run;
    attn__weights_args t = {0};
    int64_t row = 0;
    run->keys_finite = !x->wide->may_hide; /* pairs that count are noted wherever some may not */
    run->queries_finite = true;
    for (int64_t r = 0; r < run->tile_n; r++)
        attn__back_set_lse(run, r, ((const float *)run->arrays->lse)[run->m.lse_at[r]]);
    if (attn__back_describe(run, 0, run->block_n, &t, &row))
        run->plan->backward->weights(&t);
    clear_outside(x, &t, row);
    if ((run->want & ATTN__BACK_BIAS) && t.rows)
        attn__back_add_dbias(run, 0, row, t.rows, t.keys);
}

/* ------------------------------------------------------------------------------------------- gradients */

/* One gradient of a chunk: out[i, c] = sum over j of weight(i, j) in[j, c]. */
typedef struct gradient {
    side in, out;
    int64_t channels;
    const float *weight;
    bool across;     /* weight(i, j) = weight[j * strip + i]: the sum runs over queries */
    uint8_t counts;  /* the bit of `alive` that tells which pairs take part */
    const float *factor;
} gradient;

/* Masked and dropped pairs take no part: where something is not finite, 0 times it would not be 0. */
static void multiply_carefully(const block *x, const gradient *g, int64_t n)
{
    int64_t ld = x->wide->back.strip, chunk = x->wide->chunk;
    memset(g->out.panel, 0, (size_t)(g->out.rows * chunk) * sizeof(float));
    for (int64_t i = 0; i < g->out.rows; i++) {
        for (int64_t j = 0; j < g->in.rows; j++) {
            int64_t at = g->across ? j * ld + i : i * ld + j;
            for (int64_t c = 0; c < n && (x->run.m.alive[at] & g->counts); c++)
                g->out.panel[i * chunk + c] += g->weight[at] * g->in.panel[j * chunk + c];
        }
    }
}

typedef struct adding {
    block *x;
    const gradient *g;
} adding;

static void add_chunk(void *user, int64_t first, int64_t n)
{
    const adding *a = user;
    block *x = a->x;
    const gradient *g = a->g;
    const attn__wide_back *w = x->wide;
    const attn__back_plan *p = &w->back;
    int64_t lanes = p->tile->lanes, columns = (n + lanes - 1) / lanes * lanes;
    attn__wide_sum sum = {p->backward, w->sums, w->once ? NULL : x->ones, g->factor};
    bool finite = copy(x, &g->in, first, n);
    attn__ahead_begin(&x->ahead);
    attn__wide_want(&x->ahead, g->out.operand, g->out.base, g->out.at, g->out.rows, first, n);
    want(x, &g->in, first + n, g->channels);
    attn__ahead_divide(&x->ahead, attn__wide_portions(p->tile, g->out.rows, columns, g->in.rows));
    attn__tile_args args = {.m = g->out.rows, .n = columns, .k = g->in.rows, .a = g->weight,
                            .am = g->across ? 1 : p->strip, .ak = g->across ? p->strip : 1, .b = g->in.panel,
                            .ldb = w->chunk, .c = g->out.panel, .ldc = w->chunk};
    if (finite || !w->may_hide)
        attn__wide_multiply(p->tile, &args, &x->ahead);
    else
        multiply_carefully(x, g, n);
    attn__wide_put(g->out.operand, &sum, (void *)(uintptr_t)g->out.base, g->out.at, g->out.rows, first, n, g->out.panel,
                   w->chunk);
}

/* False if nothing has been done, because some weight is not finite. */
static bool add_in_stream(adding *a)
{
    const gradient *g = a->g;
    attn__wide_stream *stream = &a->x->stream;
    int64_t ld = a->x->wide->back.strip;
    attn__wide_products products = {.in = rows_of(&g->in), .out = rows_of(&g->out), .channels = g->channels,
                                    .factor = g->factor, .was = a->x->wide->once ? NULL : a->x->ones,
                                    .plain = add_chunk, .user = a};
    bool finite = g->across
                      ? attn__wide_stream_weights(stream, g->weight, ld, g->in.rows, 0, g->out.rows)
                      : attn__wide_stream_weights_along(stream, g->weight, ld, g->in.rows, g->out.rows);
    if (finite)
        attn__wide_stream_products(stream, &products);
    return finite;
}

static void add_gradient(block *x, const gradient *g)
{
    adding a = {x, g};
    if (x->wide->unit && add_in_stream(&a))
        return;
    for (int64_t first = 0; first < g->channels; first += x->wide->chunk)
        add_chunk(&a, first, attn__least(g->channels - first, x->wide->chunk));
}

static void add_gradients(block *x)
{
    attn__back_run *run = &x->run;
    const attn__task *task = run->task;
    const attn__back_plan *p = run->plan;
    const attn_arrays *a = run->arrays;
    attn__back_scratch *m = &run->m;
    int64_t nq = run->tile_n, nk = run->block_n;
    if (run->want & ATTN__BACK_V) {
        attn__back_walk(&task->key, ATTN__STRIDE(dim.dv), run->block, nk, run->item.at.dv, m->dv_at);
        add_gradient(x, &(gradient){{&x->dout, a->dout, m->dout_at, nq, m->dout}, {&x->dv, a->dv, m->dv_at, nk, m->dv},
                                    p->dv, m->s, true, 2, x->ones});
    }
    if (run->want & ATTN__BACK_K) {
        attn__back_walk(&task->key, ATTN__STRIDE(dim.dk), run->block, nk, run->item.at.dk, m->dk_at);
        add_gradient(x, &(gradient){{&x->q, a->q, m->q_at, nq, m->q}, {&x->dk, a->dk, m->dk_at, nk, m->dk},
                                    p->d, m->ds, true, 1, x->scale});
    }
    if (run->want & ATTN__BACK_Q) {
        attn__back_walk(&task->query, ATTN__STRIDE(dim.dq), run->tile, nq, run->item.at.dq, m->dq_at);
        add_gradient(x, &(gradient){{&x->k, a->k, m->k_at, nk, m->k}, {&x->dq, a->dq, m->dq_at, nq, m->dq},
                                    p->d, m->ds, false, 1, x->scale});
    }
}

static void run_block(block *x, int64_t query_block, int64_t key_block)
{
    attn__back_run *run = &x->run;
    const attn__back_plan *p = run->plan;
    run->tile = query_block * p->tile_q;
    run->block = key_block * p->chunk_k;
    run->tile_n = attn__least(p->tile_q, p->nq - run->tile);
    run->block_n = attn__least(p->chunk_k, p->nk - run->block);
    if (run->tile_n <= 0 || run->block_n <= 0)
        return;
    attn__back_limits(run);
    if (!x->wide->once && !attn__back_tile_is_needed(run))
        return;
    attn__back_locate_keys(run);
    attn__back_locate_queries(run);
    score(x);
    weigh(x);
    add_gradients(x);
}

/* ------------------------------------------------------------------------------------- the order of blocks */

static void begin(const work *w, int thread, block *x)
{
    const attn__task *task = w->task;
    attn_dtype dtype = task->problem.dtype;
    memset(x, 0, sizeof *x);
    place(w->wide, w->workspace + (size_t)thread * w->each, x);
    x->wide = w->wide;
    x->run.task = task;
    x->run.plan = &w->wide->back;
    x->run.arrays = w->arrays;
    x->run.want = w->wide->back.want;
    x->q = attn__wide_operand_of(&task->contract, ATTN__STRIDE(dim.q), dtype);
    x->k = attn__wide_operand_of(&task->contract, ATTN__STRIDE(dim.k), dtype);
    x->dq = attn__wide_operand_of(&task->contract, ATTN__STRIDE(dim.dq), dtype);
    x->dk = attn__wide_operand_of(&task->contract, ATTN__STRIDE(dim.dk), dtype);
    x->v = attn__wide_operand_of(&task->value, ATTN__STRIDE(dim.v), dtype);
    x->o = attn__wide_operand_of(&task->value, ATTN__STRIDE(dim.o), dtype);
    x->dv = attn__wide_operand_of(&task->value, ATTN__STRIDE(dim.dv), dtype);
    x->dout = attn__wide_operand_of(&task->value, ATTN__STRIDE(dim.dout), dtype);
    int64_t rows = x->run.plan->tile_q > x->run.plan->block_k ? x->run.plan->tile_q : x->run.plan->block_k;
    for (int64_t i = 0; i < rows; i++) {
        x->ones[i] = 1.0f; /* NOLINT: laid out above, never NULL */
        x->scale[i] = (float)task->problem.scale;
    }
}

/* One block of keys of one step, or all of all steps where they may meet in an element. */
static void run_cell(void *user, int64_t number, int thread)
{
    const work *w = user;
    const attn__wide_back *wide = w->wide;
    int64_t waves = wide->waves, cells = wide->in_turn ? 1 : waves, turns = wide->in_turn ? waves * waves : 1;
    block x;
    begin(w, thread, &x);
    if (wide->unit)
        wide->unit->begin();
    for (int64_t s = 0; s < wide->back.shared; s++) {
        attn__back_item_find(w->task, number / cells, s, &x.run.item);
        for (int64_t turn = 0; turn < turns; turn++) {
            int64_t key = wide->in_turn ? turn % waves : number % cells;
            int64_t step = wide->in_turn ? turn / waves : w->step;
            run_block(&x, (key + step) % waves, key);
        }
    }
    if (wide->unit)
        wide->unit->end();
}

static void clear(block *x, const attn__wide_operand *operand, void *base, const attn__group *rows, size_t stride,
                  int64_t offset, int64_t channels)
{
    const attn__wide_back *w = x->wide;
    int64_t *at = x->run.m.q_at;
    attn__wide_sum sum = {w->back.backward, w->sums, NULL, x->ones};
    memset(x->run.m.q, 0, (size_t)w->chunk * sizeof(float));
    for (int64_t i = 0; i < rows->size; i += w->back.tile_q) {
        int64_t n = attn__least(rows->size - i, w->back.tile_q);
        attn__back_walk(rows, stride, i, n, offset, at);
        for (int64_t c = 0; c < channels; c += w->chunk)
            attn__wide_put(operand, &sum, base, at, n, c, attn__least(channels - c, w->chunk), x->run.m.q, 0);
    }
}

static void clear_item(void *user, int64_t number, int thread)
{
    const work *w = user;
    const attn__task *task = w->task;
    block x;
    begin(w, thread, &x);
    attn__back_plan only_bias = w->wide->back;
    only_bias.want &= ATTN__BACK_BIAS;
    attn__back_zero(task, &only_bias, w->arrays, number, &x.run.m);
    for (int64_t s = 0; s < w->wide->back.shared && !w->wide->once; s++) {
        attn__back_item_find(task, number, s, &x.run.item);
        const attn_dim *at = &x.run.item.at;
        unsigned missing = x.run.want & ~x.run.item.reached;
        if (missing & ATTN__BACK_Q)
            clear(&x, &x.dq, w->arrays->dq, &task->query, ATTN__STRIDE(dim.dq), at->dq, w->wide->back.d);
        if (missing & ATTN__BACK_K)
            clear(&x, &x.dk, w->arrays->dk, &task->key, ATTN__STRIDE(dim.dk), at->dk, w->wide->back.d);
        if (missing & ATTN__BACK_V)
            clear(&x, &x.dv, w->arrays->dv, &task->key, ATTN__STRIDE(dim.dv), at->dv, w->wide->back.dv);
    }
}

void attn__wide_backward(const attn__task *task, const attn__recipe *recipe, const attn_arrays *arrays,
                         void *workspace)
{
    const attn__wide_back *wide = recipe->data;
    work w = {.task = task, .wide = wide, .arrays = arrays, .workspace = workspace};
    w.each = attn__wide_back_bytes(wide, task);
    bool clears = !task->problem.accumulate && (!wide->once || (wide->back.want & ATTN__BACK_BIAS));
    if (clears)
        attn__parallel_items(task->threads, wide->back.items, clear_item, &w);
    int64_t cells = wide->in_turn ? 1 : wide->waves, steps = wide->in_turn ? 1 : wide->waves;
    for (w.step = 0; w.step < steps; w.step++)
        attn__parallel_items(task->threads, wide->back.items * cells, run_cell, &w);
}
