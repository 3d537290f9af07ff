/* SPDX-License-Identifier: MIT
 *
 * wide_backward.c - the order of blocks of queries and of keys, backwards over wide heads.
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

size_t attn__wide_back_bytes(const attn__wide_back *wide, const attn__task *task)
{
    (void)task;
    attn__wide_block unused;
    return attn__wide_block_place(wide, NULL, &unused);
}

static void begin(const work *w, int thread, attn__wide_block *x)
{
    const attn__task *task = w->task;
    attn_dtype dtype = task->problem.dtype;
    memset(x, 0, sizeof *x);
    attn__wide_block_place(w->wide, w->workspace + (size_t)thread * w->each, x);
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
    attn__wide_block x;
    begin(w, thread, &x);
    if (wide->unit)
        wide->unit->begin();
    for (int64_t s = 0; s < wide->back.shared; s++) {
        attn__back_item_find(w->task, number / cells, s, &x.run.item);
        for (int64_t turn = 0; turn < turns; turn++) {
            int64_t key = wide->in_turn ? turn % waves : number % cells;
            int64_t step = wide->in_turn ? turn / waves : w->step;
            attn__wide_block_run(&x, (key + step) % waves, key);
        }
    }
    if (wide->unit)
        wide->unit->end();
}

static void clear(attn__wide_block *x, const attn__wide_operand *operand, void *base, const attn__group *rows,
                  size_t stride, int64_t offset, int64_t channels)
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
    attn__wide_block x;
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

void attn__wide_backward(const attn__task *task, const attn__recipe *recipe, const attn_arrays *arrays, void *workspace)
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
