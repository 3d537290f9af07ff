/* SPDX-License-Identifier: MIT
 *
 * wide_head_backward.c - the order of blocks of queries and of keys, backwards over wide heads.
 */
#include "attend/solve/wide_head_backward.h"

#include "attend/block/rows.h"
#include "base/integers.h"
#include "base/parallel.h"

#include <string.h>

typedef struct work {
    const attn__canonical *canonical;
    const attn__wide_head_backward_plan *wide_head;
    const attn_arrays *arrays;
    char *workspace;
    size_t each; /* bytes of one thread */
    int64_t step;
} work;

size_t attn__wide_head_backward_bytes(const attn__wide_head_backward_plan *wide_head, const attn__canonical *canonical)
{
    (void)canonical;
    attn__wide_head_block unused;
    return attn__wide_head_block_place(wide_head, NULL, &unused);
}

static void begin(const work *w, int thread, attn__wide_head_block *x)
{
    const attn__canonical *canonical = w->canonical;
    attn_dtype dtype = canonical->problem.dtype;
    memset(x, 0, sizeof *x);
    attn__wide_head_block_place(w->wide_head, w->workspace + (size_t)thread * w->each, x);
    x->wide_head = w->wide_head;
    x->run.canonical = canonical;
    x->run.plan = &w->wide_head->back;
    x->run.arrays = w->arrays;
    x->run.want = w->wide_head->back.want;
    x->q = attn__wide_head_operand_of(&canonical->contract, ATTN__STRIDE(dim.q), dtype);
    x->k = attn__wide_head_operand_of(&canonical->contract, ATTN__STRIDE(dim.k), dtype);
    x->dq = attn__wide_head_operand_of(&canonical->contract, ATTN__STRIDE(dim.dq), dtype);
    x->dk = attn__wide_head_operand_of(&canonical->contract, ATTN__STRIDE(dim.dk), dtype);
    x->v = attn__wide_head_operand_of(&canonical->value, ATTN__STRIDE(dim.v), dtype);
    x->o = attn__wide_head_operand_of(&canonical->value, ATTN__STRIDE(dim.o), dtype);
    x->dv = attn__wide_head_operand_of(&canonical->value, ATTN__STRIDE(dim.dv), dtype);
    x->dout = attn__wide_head_operand_of(&canonical->value, ATTN__STRIDE(dim.dout), dtype);
    int64_t rows = x->run.plan->tile_q > x->run.plan->block_k ? x->run.plan->tile_q : x->run.plan->block_k;
    for (int64_t i = 0; i < rows; i++) {
        x->ones[i] = 1.0f; /* NOLINT: laid out above, never NULL */
        x->scale[i] = (float)canonical->problem.scale;
    }
}

/* One block of keys of one step, or all of all steps where they may meet in an element. */
static void run_cell(void *user, int64_t number, int thread)
{
    const work *w = user;
    const attn__wide_head_backward_plan *wide_head = w->wide_head;
    int64_t waves = wide_head->waves, cells = wide_head->in_turn ? 1 : waves,
            turns = wide_head->in_turn ? waves * waves : 1;
    attn__wide_head_block x;
    begin(w, thread, &x);
    if (wide_head->amx)
        wide_head->amx->begin();
    for (int64_t s = 0; s < wide_head->back.shared; s++) {
        attn__flash_backward_item_find(w->canonical, number / cells, s, &x.run.item);
        for (int64_t turn = 0; turn < turns; turn++) {
            int64_t key = wide_head->in_turn ? turn % waves : number % cells;
            int64_t step = wide_head->in_turn ? turn / waves : w->step;
            attn__wide_head_block_run(&x, (key + step) % waves, key);
        }
    }
    if (wide_head->amx)
        wide_head->amx->end();
}

static void clear(attn__wide_head_block *x, const attn__wide_head_operand *operand, void *base, const attn__group *rows,
                  size_t stride, int64_t offset, int64_t channels)
{
    const attn__wide_head_backward_plan *w = x->wide_head;
    int64_t *at = x->run.m.query_at.q;
    attn__wide_head_chunk c = {.of = {.operand = operand, .base = base, .at = at}};
    attn__wide_head_sum sum = {w->back.backward, w->sums, NULL, x->ones};
    memset(x->run.m.q, 0, (size_t)w->chunk * sizeof(float));
    for (int64_t i = 0; i < rows->size; i += w->back.tile_q) {
        c.of.rows = attn__least(rows->size - i, w->back.tile_q);
        attn__flash_backward_walk(rows, stride, i, c.of.rows, offset, at);
        for (c.first = 0; c.first < channels; c.first += w->chunk) {
            c.n = attn__least(channels - c.first, w->chunk);
            attn__wide_head_store(&c, &sum, x->run.m.q, 0);
        }
    }
}

static void clear_item(void *user, int64_t number, int thread)
{
    const work *w = user;
    const attn__canonical *canonical = w->canonical;
    attn__wide_head_block x;
    begin(w, thread, &x);
    attn__flash_backward_plan only_bias = w->wide_head->back;
    only_bias.want &= ATTN__FLASH_BACKWARD_BIAS;
    attn__flash_backward_zero(canonical, &only_bias, w->arrays, number, &x.run.m);
    for (int64_t s = 0; s < w->wide_head->back.shared && !w->wide_head->once; s++) {
        attn__flash_backward_item_find(canonical, number, s, &x.run.item);
        const attn_dim *at = &x.run.item.at;
        unsigned missing = x.run.want & ~x.run.item.reached;
        if (missing & ATTN__FLASH_BACKWARD_Q)
            clear(&x, &x.dq, w->arrays->dq, &canonical->query, ATTN__STRIDE(dim.dq), at->dq, w->wide_head->back.d);
        if (missing & ATTN__FLASH_BACKWARD_K)
            clear(&x, &x.dk, w->arrays->dk, &canonical->key, ATTN__STRIDE(dim.dk), at->dk, w->wide_head->back.d);
        if (missing & ATTN__FLASH_BACKWARD_V)
            clear(&x, &x.dv, w->arrays->dv, &canonical->key, ATTN__STRIDE(dim.dv), at->dv, w->wide_head->back.dv);
    }
}

void attn__wide_head_backward(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                              void *workspace)
{
    const attn__wide_head_backward_plan *wide_head = recipe->data;
    work w = {.canonical = canonical, .wide_head = wide_head, .arrays = arrays, .workspace = workspace};
    w.each = attn__wide_head_backward_bytes(wide_head, canonical);
    bool clears =
        !canonical->problem.accumulate && (!wide_head->once || (wide_head->back.want & ATTN__FLASH_BACKWARD_BIAS));
    if (clears)
        attn__parallel_items(canonical->threads, wide_head->back.items, clear_item, &w);
    int64_t cells = wide_head->in_turn ? 1 : wide_head->waves, steps = wide_head->in_turn ? 1 : wide_head->waves;
    for (w.step = 0; w.step < steps; w.step++)
        attn__parallel_items(canonical->threads, wide_head->back.items * cells, run_cell, &w);
}
