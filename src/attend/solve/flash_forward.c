/* SPDX-License-Identifier: MIT
 *
 * flash_forward.c - one item of the tiled forward pass: its queries, the loop over key blocks, its output.
 */
#include "attend/solve/flash_item.h"

#include "attend/block/rows.h"
#include "attend/block/packed_sequences.h"
#include "base/integers.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "base/constants.h"

#include <math.h>
#include <string.h>

/* Batch and query part of the offsets of one operand, for each query of the item. */
static void query_offsets(const attn__flash_item *t, size_t stride, int64_t batch, int64_t *out)
{
    int64_t base = attn__offsets_one(&t->canonical->batch, stride, batch);
    attn__offsets_fill(&t->canonical->query, stride, t->first, t->count, out);
    for (int64_t i = 0; i < t->count; i++)
        out[i] += base;
}

static void dropout_keys(attn__flash_item *t, int64_t batch)
{
    const attn_problem *p = &t->canonical->problem;
    query_offsets(t, ATTN__STRIDE(drop), batch, t->s.row);
    for (int64_t i = 0; i < t->padded; i++) {
        uint64_t row = attn__drop_row(&t->arrays->drop_rows, (uint64_t)t->s.row[i < t->count ? i : t->count - 1]);
        uint64_t key = attn__dropout_key(p->seed + t->arrays->seed_offset, p->stream, row);
        t->s.key_low[i] = (uint32_t)key;
        t->s.key_high[i] = (uint32_t)(key >> 32);
    }
}

/* Subtiles share the vectors evenly: a lone vector would leave the tile product waiting for its sums. */
static void divide_subtiles(attn__flash_item *t)
{
    int64_t lanes = t->flash->tile->lanes, vectors = t->padded / lanes;
    t->subtiles = (vectors + t->flash->vectors - 1) / t->flash->vectors;
}

attn__flash_subtile attn__flash_subtile_at(const attn__flash_item *t, int64_t i)
{
    int64_t lanes = t->flash->tile->lanes, vectors = t->padded / lanes, n = t->subtiles;
    int64_t each = vectors / n, more = vectors % n;
    attn__flash_subtile sub = {.index = i};
    sub.lane = (i * each + (i < more ? i : more)) * lanes;
    sub.width = (each + (i < more)) * lanes;
    sub.lanes = t->count - sub.lane < sub.width ? t->count - sub.lane : sub.width;
    return sub;
}

void attn__flash_gather_queries(attn__flash_item *t)
{
    const attn__flash *f = t->flash;
    if (t->q_ready)
        return;
    t->q_ready = true;
    float factor = f->pairs ? 1.0f : (float)(t->canonical->problem.scale * ATTN__LOG2E);
    for (int64_t i = 0; i < t->subtiles; i++) {
        attn__flash_subtile sub = attn__flash_subtile_at(t, i);
        attn__lane_view view = {(void *)(uintptr_t)t->arrays->q,
                                t->canonical->problem.dtype,
                                t->s.query_at.q + sub.lane,
                                f->q_channel,
                                f->channels,
                                sub.lanes};
        float *q = t->s.q + sub.lane * f->channels;
        f->lanes->gather(&view, q, sub.width, factor);
        if (f->pairs) /* exact: unscaled, they are bf16 still */
            f->pairs->round_rows(q, f->channels, sub.width, t->s.pairs.q + sub.lane * f->channel_pairs);
    }
}

/* A sink is in the running sums before any key. */
static void begin_sums(attn__flash_item *t, int64_t batch)
{
    attn__flash_scratch *s = &t->s;
    const float *sinks = t->arrays->sinks;
    for (int64_t i = 0; i < t->padded; i++) {
        s->m[i] = -INFINITY;
        s->l[i] = 0.0f;
    }
    if (!(t->canonical->extras & ATTN__SINKS))
        return;
    query_offsets(t, ATTN__STRIDE(dim.sinks), batch, s->row);
    for (int64_t i = 0; i < t->count; i++) {
        s->m[i] = (float)((double)sinks[s->row[i]] * ATTN__LOG2E);
        s->l[i] = s->m[i] == -INFINITY ? 0.0f : 1.0f;
    }
}

void attn__flash_begin(attn__flash_item *t, int64_t batch)
{
    const attn__canonical *canonical = t->canonical;
    attn__flash_scratch *s = &t->s;
    int64_t lanes = t->flash->tile->lanes;
    t->padded = (t->count + lanes - 1) / lanes * lanes;
    query_offsets(t, ATTN__STRIDE(dim.q), batch, s->query_at.q);
    query_offsets(t, ATTN__STRIDE(dim.o), batch, s->query_at.o);
    if (canonical->problem.flags & ATTN_WANT_LSE)
        query_offsets(t, ATTN__STRIDE(dim.lse), batch, s->query_at.lse);
    if (canonical->has_bias)
        query_offsets(t, ATTN__STRIDE(dim.bias), batch, s->query_at.bias);
    if (canonical->has_mask)
        query_offsets(t, ATTN__STRIDE(dim.mask), batch, s->query_at.mask);
    if (canonical->has_blocks)
        attn__block_rows(canonical, attn__offsets_one(&canonical->batch, ATTN__STRIDE(dim.blocks), batch), t->first,
                         t->count, s->query_at.block);
    if (canonical->has_dropout)
        dropout_keys(t, batch);
    t->k_base = attn__offsets_one(&canonical->batch, ATTN__STRIDE(dim.k), batch);
    t->v_base = attn__offsets_one(&canonical->batch, ATTN__STRIDE(dim.v), batch);
    begin_sums(t, batch);
    divide_subtiles(t);
    attn__flash_find_limits(t, batch);
    attn__flash_tables_begin(t, batch);
}

void attn__flash_write_lse(const attn__flash_item *t)
{
    float *lse = t->arrays->lse;
    for (int64_t i = 0; i < t->count; i++) {
        double l = t->s.l[i], m = t->s.m[i];
        lse[t->s.query_at.lse[i]] = l == 0.0 ? -INFINITY : (float)(log(l) + m / ATTN__LOG2E);
    }
}

/* A row without keys has l = 0 and, as nothing was ever added, o = 0. */
static void finish(attn__flash_item *t)
{
    const attn__flash *f = t->flash;
    float kept = (float)(1.0 / (1.0 - t->canonical->problem.dropout));
    for (int64_t i = 0; i < t->padded; i++)
        t->s.shrink[i] = t->s.l[i] == 0.0f ? 0.0f : kept / t->s.l[i];
    for (int64_t i = 0; i < t->subtiles; i++) {
        attn__flash_subtile sub = attn__flash_subtile_at(t, i);
        float *o = t->s.o + sub.lane * f->held;
        if (!t->s.span[i].started)
            memset(o, 0, (size_t)(sub.width * f->values) * sizeof *o);
        attn__lane_view view = {
            t->arrays->o, t->canonical->problem.dtype, t->s.query_at.o + sub.lane, f->o_channel, f->values, sub.lanes};
        f->lanes->scatter(&view, o, sub.width, t->s.shrink + sub.lane);
    }
    if (t->canonical->problem.flags & ATTN_WANT_LSE)
        attn__flash_write_lse(t);
}

typedef struct job {
    const attn__canonical *canonical;
    const attn__flash *flash;
    const attn_arrays *arrays;
    char *workspace;
    size_t each; /* bytes of one thread */
} job;

/* The last block of queries first: under a causal mask it is the longest. */
static void run_item(void *user, int64_t item, int thread)
{
    const job *j = user;
    const attn__flash *f = j->flash;
    int64_t batch = item / f->query_blocks, block = f->query_blocks - 1 - item % f->query_blocks;
    attn__flash_item t = {.canonical = j->canonical, .flash = f, .arrays = j->arrays, .first = block * f->query_block};
    t.count = j->canonical->query.size - t.first < f->query_block ? j->canonical->query.size - t.first : f->query_block;
    int64_t next = item + 1; /* mostly this thread's too */
    t.next_batch = next < j->canonical->batch.size * f->query_blocks ? next / f->query_blocks : -1;
    t.next_first = (f->query_blocks - 1 - next % f->query_blocks) * f->query_block;
    attn__sequence one;
    if (attn__is_packed(j->canonical)) {
        int64_t sequence = attn__packed_sequence(j->canonical, batch);
        if (t.first >= attn__packed_rows(j->canonical, j->arrays, sequence))
            return;
        attn__sequence_at(&one, j->canonical, j->arrays, sequence);
        t.canonical = &one.canonical, t.arrays = &one.arrays;
        t.count = attn__least(one.canonical.query.size - t.first, f->query_block);
        t.next_batch = -1; /* of another sequence */
    }
    attn__flash_divide(f, j->canonical, j->workspace + (size_t)thread * j->each, &t.s);
    attn__flash_begin(&t, batch);
    if (f->parts) {
        f->parts->begin();
        attn__flash_amx_queries(&t);
    } else {
        attn__flash_gather_queries(&t);
    }
    for (int64_t at = t.key_begin; at < t.key_end; at += f->key_block)
        attn__flash_key_block(&t, at, t.key_end - at < f->key_block ? t.key_end - at : f->key_block);
    if (f->parts)
        f->parts->end();
    finish(&t);
}

void attn__flash_forward(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                         void *workspace)
{
    job j = {.canonical = canonical, .flash = recipe->data, .arrays = arrays, .workspace = workspace};
    attn__flash_scratch scratch;
    j.each = attn__flash_divide(j.flash, canonical, NULL, &scratch);
    for (int thread = 0; j.flash->ntables && thread < canonical->threads; thread++) {
        attn__flash_divide(j.flash, canonical, j.workspace + (size_t)thread * j.each, &scratch);
        attn__flash_tables_start(j.flash, &scratch);
    }
    attn__parallel_items(canonical->threads, canonical->batch.size * j.flash->query_blocks, run_item, &j);
}
