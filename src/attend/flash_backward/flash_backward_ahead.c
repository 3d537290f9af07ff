/* SPDX-License-Identifier: MIT
 *
 * flash_backward_ahead.c - rows that will be read soon, brought to the second cache bit by bit between the tile
 * products: the rows of one head may lie pages apart, where the machine does not look ahead by itself.
 */
#include "attend/flash_backward/flash_backward.h"

#include "attend/task/integers.h"

enum { LINE = 64, PORTIONS = 4 /* of a strip, at least */ };

static int64_t portions(const attn__back_run *run, int64_t tiles)
{
    return tiles * PORTIONS * ((run->block_n + run->plan->strip - 1) / run->plan->strip);
}

typedef struct rows {
    const void *base;
    const attn__group *group;
    size_t stride;
    int64_t offset, begin, n;
    const int64_t *scattered; /* channels that are not neighbours are left to the machine */
    int64_t channels;
} rows;

static void want_rows(attn__back_run *run, int stream, rows r, int64_t portion_count)
{
    attn__back_stream *s = &run->ahead[stream];
    *s = (attn__back_stream){0};
    if (r.scattered || r.n <= 0)
        return;
    attn__back_walk(r.group, r.stride, r.begin, r.n, r.offset, run->m.ahead_at[stream]);
    *s = (attn__back_stream){.base = r.base, .rows = r.n, .each = (r.n + portion_count - 1) / portion_count,
                             .bytes = r.channels * (run->plan->bf16 ? 2 : 4)};
}

/* The tile after this one, or the first one again for the next block of keys, or the next cell's first; and where its
 * dQ goes. */
void attn__back_next_tile(attn__back_run *run)
{
    const attn__back_plan *plan = run->plan;
    const attn__back_channels *c = &plan->channels;
    const attn_arrays *x = run->arrays;
    const attn__group *query = &run->task->query;
    const attn_dim *at = &run->item.at, *next = at;
    bool last = run->tile + run->tile_n >= run->q_end, end = run->block + plan->block_k >= run->k_end;
    bool writes = (run->want & ATTN__BACK_Q) && (end || !plan->resident_q);
    int64_t begin = last ? run->q_begin : run->tile + run->tile_n, count = portions(run, 1);
    int64_t n = (last && end) || begin == run->tile ? 0 : attn__least(plan->tile_q, run->q_end - begin);
    if (last && end && run->has_next) {
        next = &run->next.at;
        begin = run->next_q;
        n = attn__least(plan->tile_q, plan->nq - begin);
    }
    rows q = {x->q, query, ATTN__STRIDE(dim.q), next->q, begin, n, c->q, plan->d};
    rows dout = {x->dout, query, ATTN__STRIDE(dim.dout), next->dout, begin, n, c->dout, plan->dv};
    rows o = {x->o, query, ATTN__STRIDE(dim.o), next->o, begin, n, c->o, plan->dv};
    rows dq = {x->dq, query, ATTN__STRIDE(dim.dq), at->dq, run->tile, writes ? run->tile_n : 0, c->dq, plan->d};
    want_rows(run, ATTN__AHEAD_Q, q, count);
    want_rows(run, ATTN__AHEAD_DOUT, dout, count);
    want_rows(run, ATTN__AHEAD_O, o, count);
    want_rows(run, ATTN__AHEAD_DQ, dq, count);
}

/* The keys and values of the next block, or of the next cell's first one, and where this one's gradients go. */
void attn__back_next_block(attn__back_run *run)
{
    const attn__back_plan *plan = run->plan;
    const attn__back_channels *c = &plan->channels;
    const attn_arrays *x = run->arrays;
    const attn__group *key = &run->task->key;
    const attn_dim *at = &run->item.at, *next = at;
    int64_t begin = run->block + plan->block_k, n = attn__least(plan->block_k, run->k_end - begin);
    int64_t count = portions(run, (run->q_end - run->tile + plan->tile_q - 1) / plan->tile_q);
    int64_t dk_n = run->want & ATTN__BACK_K ? run->block_n : 0, dv_n = run->want & ATTN__BACK_V ? run->block_n : 0;
    if (n <= 0 && run->has_next) {
        next = &run->next.at;
        begin = run->next_k;
        n = attn__least(plan->block_k, plan->nk - begin);
    }
    rows k = {x->k, key, ATTN__STRIDE(dim.k), next->k, begin, n, c->k, plan->d};
    rows v = {x->v, key, ATTN__STRIDE(dim.v), next->v, begin, n, c->v, plan->dv};
    rows dk = {x->dk, key, ATTN__STRIDE(dim.dk), at->dk, run->block, dk_n, c->dk, plan->d};
    rows dv = {x->dv, key, ATTN__STRIDE(dim.dv), at->dv, run->block, dv_n, c->dv, plan->dv};
    want_rows(run, ATTN__AHEAD_K, k, count);
    want_rows(run, ATTN__AHEAD_V, v, count);
    want_rows(run, ATTN__AHEAD_DK, dk, count);
    want_rows(run, ATTN__AHEAD_DV, dv, count);
}

/* Brings in one portion of each stream. */
void attn__back_fetch(attn__back_run *run)
{
    for (int i = 0; i < ATTN__BACK_STREAMS; i++) {
        attn__back_stream *s = &run->ahead[i];
        int64_t end = attn__least(s->rows, s->done + s->each), size = run->plan->bf16 ? 2 : 4;
        for (; s->done < end; s->done++) {
            const char *row = s->base + run->m.ahead_at[i][s->done] * size;
            for (int64_t at = 0; at < s->bytes; at += LINE)
                __builtin_prefetch(row + at, 0, 2);
        }
    }
}
