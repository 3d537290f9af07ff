/* SPDX-License-Identifier: MIT
 *
 * wide_head_forward.c - one item of the forward pass over wide heads: a block of queries against all keys.
 */
#include "attend/solve/wide_head_item.h"

#include "attend/block/rows.h"
#include "base/arena.h"
#include "base/integers.h"
#include "base/parallel.h"
#include "base/constants.h"

#include <math.h>
#include <string.h>

/* Divides one thread's memory; returns the bytes that takes.  With NULL it only counts. */
static size_t place(const attn__wide_head *w, const attn__canonical *canonical, char *base, attn__wide_head_item *x)
{
    const attn__flash *f = w->flash;
    int64_t square = f->query_block * f->key_block;
    attn__arena arena = {base, attn__flash_divide(f, canonical, base, &x->t.s)};
    x->s = attn__arena_take(&arena, square, sizeof(float));
    x->hidden = attn__arena_take(&arena, attn__flash_may_hide(canonical, f) ? square : 0, 1);
    x->p = attn__bf16x3_packed(NULL, f->key_block / ATTN__BF16X3_DEPTH, f->terms);
    if (f->amx)
        x->p.data = attn__arena_take(&arena, square * f->terms, sizeof *x->p.data);
    x->sums = attn__arena_take(&arena, w->private_sums ? f->query_block * w->values : 0, sizeof(float));
    x->sums_at = attn__arena_take(&arena, f->query_block, sizeof(int64_t));
    x->factor = attn__arena_take(&arena, f->query_block, sizeof(float));
    x->was = attn__arena_take(&arena, f->query_block, sizeof(float));
    x->table = attn__arena_take(&arena, ATTN__WIDE_HEAD_AMX_CHUNK, sizeof(int64_t));
    if (w->amx)
        attn__wide_head_stream_place(&x->stream, &arena, attn__most(f->query_block, f->key_block));
    x->stream.amx = w->amx;
    return arena.used;
}

size_t attn__wide_head_bytes(const attn__wide_head *wide_head, const attn__canonical *canonical)
{
    attn__wide_head_item unused;
    return place(wide_head, canonical, NULL, &unused);
}

/* ---------------------------------------------------------------------------------------------- scores */

static void pack_scores(attn__wide_head_item *x, const attn__flash_keys *b, int64_t first, int64_t n)
{
    attn__flash_item *t = &x->t;
    const attn__flash *f = t->flash;
    attn__wide_head_chunk k = {attn__wide_head_keys(x, b), first, n};
    attn__wide_head_copy(&k, f->lanes, &(attn__wide_head_panel){t->s.k, f->ldk, x->table});
    for (int64_t i = 0; i < t->subtiles; i++) {
        attn__flash_subtile sub = attn__flash_subtile_at(t, i);
        attn__wide_head_chunk q = {{&x->q, t->arrays->q, t->s.query_at.q + sub.lane, sub.lanes}, first, n};
        if (attn__wide_head_sees(x, b, i))
            attn__wide_head_gather(&q, f->lanes, &(attn__wide_head_panel){t->s.q + sub.lane * n, sub.width, x->table},
                                   (float)(t->canonical->problem.scale * ATTN__LOG2E));
    }
}

/* Plans to prefetch what follows channels [.., next): the next chunk, or the first chunk of the values. */
void attn__wide_head_plan_prefetch(attn__wide_head_item *x, const attn__flash_keys *b, int64_t next)
{
    const attn__wide_head *w = x->wide_head;
    const attn__flash_item *t = &x->t;
    int64_t left = w->channels - next, rows = w->flash->tile->rows;
    attn__prefetch_clear(&x->prefetch);
    if (left > 0) {
        int64_t n = attn__least(left, w->flash->channels);
        attn__wide_head_prefetch(&x->prefetch, &(attn__wide_head_chunk){attn__wide_head_keys(x, b), next, n});
        attn__wide_head_prefetch(&x->prefetch, &(attn__wide_head_chunk){attn__wide_head_queries(x), next, n});
    } else {
        int64_t n = attn__least(w->values, w->flash->values);
        attn__wide_head_prefetch(&x->prefetch, &(attn__wide_head_chunk){attn__wide_head_values(x, b), 0, n});
    }
    attn__prefetch_divide(&x->prefetch, t->subtiles * (w->flash->amx ? 1 : (b->keys + rows - 1) / rows));
}

static void add_scores(attn__wide_head_item *x, const attn__flash_keys *b, attn__flash_subtile sub, int64_t n,
                       bool accumulate)
{
    const attn__flash *f = x->t.flash;
    attn__gemm_tile_args args = {.m = b->keys,
                                 .n = sub.width,
                                 .k = n,
                                 .a = x->t.s.k,
                                 .am = f->ldk,
                                 .ak = 1,
                                 .b = x->t.s.q + sub.lane * n,
                                 .ldb = sub.width,
                                 .c = x->s + sub.lane * b->packed,
                                 .ldc = sub.width,
                                 .accumulate = accumulate,
                                 .hook = {attn__prefetch_portion, &x->prefetch}};
    f->tile->run(&args);
}

static void add_chunk(attn__wide_head_item *x, const attn__flash_keys *b, int64_t first, int64_t n)
{
    pack_scores(x, b, first, n);
    attn__wide_head_plan_prefetch(x, b, first + n);
    for (int64_t i = 0; i < x->t.subtiles; i++) {
        if (attn__wide_head_sees(x, b, i))
            add_scores(x, b, attn__flash_subtile_at(&x->t, i), n, first > 0);
    }
}

static void score_chunk(void *user, int64_t first, int64_t n)
{
    const attn__wide_head_viewer *l = user;
    add_chunk(l->x, l->b, first, n);
}

static void score(attn__wide_head_item *x, attn__flash_keys *b)
{
    const attn__wide_head *w = x->wide_head;
    if (w->amx) {
        attn__wide_head_score_in_stream(x, b, score_chunk);
        return;
    }
    for (int64_t first = 0, n; first < w->channels; first += n) {
        n = attn__least(w->channels - first, w->flash->channels);
        if (w->flash->amx) {
            attn__wide_head_amx_scores(x, b, first, n);
            continue;
        }
        add_chunk(x, b, first, n);
    }
}

/* --------------------------------------------------------------------------------------------- weights */

/* The last block of a row also divides by the sum of its weights.  A row without keys gets zeros. */
static void find_factors(attn__wide_head_item *x, const attn__flash_keys *b, attn__flash_subtile sub, bool changed)
{
    attn__flash_item *t = &x->t;
    float kept = (float)(1.0 / (1.0 - t->canonical->problem.dropout));
    bool last = b->at + b->keys >= t->s.span[sub.index].end;
    for (int64_t i = sub.lane; i < sub.lane + sub.lanes; i++) {
        float l = t->s.l[i];
        x->factor[i] = !last ? 1.0f : l == 0.0f ? 0.0f : kept / l;
        x->was[i] = (changed ? t->s.shrink[i] : 1.0f) * x->factor[i];
    }
}

static void weigh(attn__wide_head_item *x, const attn__flash_keys *b)
{
    attn__flash_item *t = &x->t;
    x->weights_finite = true;
    for (int64_t i = 0; i < t->subtiles; i++) {
        attn__flash_subtile sub = attn__flash_subtile_at(t, i);
        if (!attn__wide_head_sees(x, b, i))
            continue;
        attn__wide_head_aim(x, b, sub);
        if (t->flash->amx)
            attn__flash_amx_scale(t, b, sub);
        attn__flash_mask(t, b, sub);
        if (attn__flash_may_hide(t->canonical, t->flash))
            attn__flash_note_hidden(t, b, sub);
        bool changed = attn__flash_softmax(t, b, sub, NULL);
        find_factors(x, b, sub, changed);
        if (t->flash->amx)
            attn__wide_head_split_weights(x, b, sub);
        if (x->wide_head->amx &&
            !attn__wide_head_stream_weights(&x->stream, t->s.s, sub.width, b->keys, sub.lane, sub.width))
            x->weights_finite = false;
    }
}

/* ---------------------------------------------------------------------------------------------- values */

/* O[queries, chunk] = P V. */
static void multiply(attn__wide_head_item *x, const attn__flash_keys *b, attn__flash_subtile sub, int64_t n)
{
    const attn__flash *f = x->t.flash;
    int64_t columns = attn__wide_head_whole_lanes(f, n);
    attn__gemm_tile_args args = {.m = sub.lanes,
                                 .n = columns,
                                 .k = b->keys,
                                 .a = x->t.s.s,
                                 .am = 1,
                                 .ak = sub.width,
                                 .b = x->t.s.v,
                                 .ldb = f->ldv,
                                 .c = x->t.s.o,
                                 .ldc = columns};
    attn__wide_head_multiply(f->tile, &args, &x->prefetch);
}

static bool row_is_finite(const float *row, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        if (!isfinite(row[c]))
            return false;
    return true;
}

/* One key whose value is not finite: masked and dropped pairs take no part. */
static void add_key_carefully(attn__wide_head_item *x, int64_t key, attn__flash_subtile sub, int64_t n)
{
    int64_t columns = attn__wide_head_whole_lanes(x->t.flash, n);
    const float *p = x->t.s.s + key * sub.width, *v = x->t.s.v + key * x->t.flash->ldv;
    const uint8_t *hidden = x->t.s.hidden + key * sub.width;
    for (int64_t i = 0; i < sub.lanes; i++) {
        float *o = x->t.s.o + i * columns;
        for (int64_t c = 0; c < n && !(hidden[i] && p[i] == 0.0f); c++)
            o[c] += p[i] * v[c];
    }
}

/* Runs of finite keys by the product, in the same order as without the others: queries that do not see those get
 * the same bits. */
static void multiply_carefully(attn__wide_head_item *x, const attn__flash_keys *b, attn__flash_subtile sub, int64_t n)
{
    const attn__flash *f = x->t.flash;
    int64_t columns = attn__wide_head_whole_lanes(f, n), from = 0;
    attn__gemm_tile_args args = {
        .m = sub.lanes, .n = columns, .am = 1, .ak = sub.width, .ldb = f->ldv, .c = x->t.s.o, .ldc = columns};
    for (int64_t key = 0; key <= b->keys; key++) {
        if (key < b->keys && row_is_finite(x->t.s.v + key * f->ldv, n))
            continue;
        args.k = key - from;
        args.a = x->t.s.s + from * sub.width;
        args.b = x->t.s.v + from * f->ldv;
        f->tile->run(&args);
        args.accumulate = true;
        if (key < b->keys)
            add_key_carefully(x, key, sub, n);
        from = key + 1;
    }
}

static void store(attn__wide_head_item *x, attn__flash_subtile sub, int64_t first, int64_t n)
{
    const attn__wide_head *w = x->wide_head;
    attn__flash_item *t = &x->t;
    int64_t ld = attn__wide_head_whole_lanes(w->flash, n);
    bool started = t->s.span[sub.index].started;
    attn__wide_head_sum sum = {w->store, w->sums, started ? x->was + sub.lane : NULL, x->factor + sub.lane};
    attn__wide_head_operand plain = {.dtype = ATTN_F32, .run = w->values};
    attn__wide_head_chunk o = {{&x->o, t->arrays->o, t->s.query_at.o + sub.lane, sub.lanes}, first, n};
    if (w->private_sums)
        o.of = (attn__wide_head_rows){&plain, x->sums, x->sums_at + sub.lane, sub.lanes};
    attn__wide_head_store(&o, &sum, t->s.o, ld);
}

static void prefetch_values(attn__wide_head_item *x, const attn__flash_keys *b, int64_t first, int64_t n)
{
    const attn__wide_head *w = x->wide_head;
    const attn__flash_item *t = &x->t;
    int64_t next = first + n;
    attn__prefetch_clear(&x->prefetch);
    attn__wide_head_chunk o = {{&x->o, t->arrays->o, t->s.query_at.o, t->count}, first, n};
    attn__wide_head_chunk v = {attn__wide_head_values(x, b), next, attn__least(w->values - next, n)};
    if (!w->private_sums)
        attn__wide_head_prefetch(&x->prefetch, &o);
    attn__wide_head_prefetch(&x->prefetch, &v);
    attn__prefetch_divide(&x->prefetch,
                          b->amx ? t->subtiles : attn__wide_head_portions(w->flash->tile, t->count, n, b->keys));
}

static void add_chunk_of_values(attn__wide_head_item *x, attn__flash_keys *b, int64_t first, int64_t n)
{
    const attn__flash_item *t = &x->t;
    attn__wide_head_load_values(x, b, first, n);
    prefetch_values(x, b, first, n);
    for (int64_t i = 0; i < t->subtiles; i++) {
        attn__flash_subtile sub = attn__flash_subtile_at(t, i);
        if (!attn__wide_head_sees(x, b, i))
            continue;
        attn__wide_head_aim(x, b, sub);
        if (b->amx)
            attn__wide_head_amx_values(x, b, sub, n);
        else if (b->careful)
            multiply_carefully(x, b, sub, n);
        else
            multiply(x, b, sub, n);
        store(x, sub, first, n);
    }
}

static void value_chunk(void *user, int64_t first, int64_t n)
{
    const attn__wide_head_viewer *l = user;
    add_chunk_of_values(l->x, l->b, first, n);
}

static void add_values(attn__wide_head_item *x, attn__flash_keys *b)
{
    const attn__wide_head *w = x->wide_head;
    attn__flash_item *t = &x->t;
    bool done = w->amx && attn__wide_head_add_values_in_stream(x, b, value_chunk);
    for (int64_t first = 0, n; first < w->values && !done; first += n) {
        n = attn__least(w->values - first, w->flash->values);
        add_chunk_of_values(x, b, first, n);
    }
    for (int64_t i = 0; i < t->subtiles; i++)
        t->s.span[i].started = t->s.span[i].started || attn__wide_head_sees(x, b, i);
}

/* ------------------------------------------------------------------------------------------------ item */

static void key_block(attn__wide_head_item *x, int64_t at, int64_t keys)
{
    attn__flash_item *t = &x->t;
    attn__flash_keys b = {.at = at, .keys = keys};
    b.packed = attn__round_up(keys, t->flash->amx || x->wide_head->amx ? ATTN__BF16X3_SIDE : 1);
    attn__flash_key_offsets(t, &b, ATTN__STRIDE(dim.k), t->k_base, t->s.key_at.k);
    attn__flash_key_offsets(t, &b, ATTN__STRIDE(dim.v), t->v_base, t->s.key_at.v);
    attn__flash_key_tables(t, &b);
    score(x, &b);
    weigh(x, &b);
    add_values(x, &b);
}

/* Rows that no key was seen by, and sums that were kept apart. */
static void finish(attn__wide_head_item *x)
{
    const attn__wide_head *w = x->wide_head;
    attn__flash_item *t = &x->t;
    for (int64_t i = 0; i < t->subtiles; i++) {
        attn__flash_subtile sub = attn__flash_subtile_at(t, i);
        bool started = t->s.span[i].started;
        if (started && !w->private_sums)
            continue;
        for (int64_t r = sub.lane; r < sub.lane + sub.lanes; r++)
            x->factor[r] = started ? 1.0f : 0.0f;
        attn__wide_head_sum sum = {w->store, w->sums, NULL, x->factor + sub.lane};
        int64_t chunk = w->flash->values, ld = started ? w->values : 0;
        if (!started)
            memset(t->s.o, 0, (size_t)chunk * sizeof(float));
        attn__wide_head_chunk o = {.of = {&x->o, t->arrays->o, t->s.query_at.o + sub.lane, sub.lanes}};
        for (; o.first < w->values; o.first += chunk) {
            o.n = attn__least(chunk, w->values - o.first);
            attn__wide_head_store(&o, &sum, started ? x->sums + sub.lane * w->values + o.first : t->s.o, ld);
        }
    }
    if (t->canonical->problem.flags & ATTN_WANT_LSE)
        attn__flash_write_lse(t);
}

typedef struct job {
    const attn__canonical *canonical;
    const attn__wide_head *wide_head;
    const attn_arrays *arrays;
    char *workspace;
    size_t each; /* bytes of one thread */
} job;

static void run_item(void *user, int64_t number, int thread)
{
    const job *j = user;
    const attn__canonical *canonical = j->canonical;
    const attn__flash *f = j->wide_head->flash;
    int64_t batch = number / f->query_blocks, block = f->query_blocks - 1 - number % f->query_blocks;
    attn__wide_head_item x = {
        .t = {.canonical = canonical, .flash = f, .arrays = j->arrays, .first = block * f->query_block},
        .wide_head = j->wide_head};
    place(j->wide_head, canonical, j->workspace + (size_t)thread * j->each, &x);
    x.t.count = attn__least(canonical->query.size - x.t.first, f->query_block);
    x.t.next_batch = -1;
    x.q = attn__wide_head_operand_of(&canonical->contract, ATTN__STRIDE(dim.q), canonical->problem.dtype);
    x.k = attn__wide_head_operand_of(&canonical->contract, ATTN__STRIDE(dim.k), canonical->problem.dtype);
    x.v = attn__wide_head_operand_of(&canonical->value, ATTN__STRIDE(dim.v), canonical->problem.dtype);
    x.o = attn__wide_head_operand_of(&canonical->value, ATTN__STRIDE(dim.o), canonical->problem.dtype);
    for (int64_t i = 0; i < x.t.count; i++)
        x.sums_at[i] = i * j->wide_head->values;
    attn__flash_begin(&x.t, batch);
    const attn__bf16x3_kernel *amx = f->amx ? f->amx : j->wide_head->amx;
    if (amx)
        amx->begin();
    for (int64_t at = x.t.key_begin; at < x.t.key_end; at += f->key_block)
        key_block(&x, at, attn__least(x.t.key_end - at, f->key_block));
    if (amx)
        amx->end();
    finish(&x);
}

void attn__wide_head_forward(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                             void *workspace)
{
    job j = {.canonical = canonical, .wide_head = recipe->data, .arrays = arrays, .workspace = workspace};
    j.each = attn__wide_head_bytes(j.wide_head, canonical);
    attn__parallel_items(canonical->threads, canonical->batch.size * j.wide_head->flash->query_blocks, run_item, &j);
}
