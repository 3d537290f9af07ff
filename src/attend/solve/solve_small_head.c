/* SPDX-License-Identifier: MIT
 *
 * solve_small_head.c - the solver for heads of at most 16 channels: what it accepts, its cost, its plan.
 */
#include "attend/solve/small_head_plan.h"

#include "attend/solve/flash.h"
#include "attend/block/rows.h"
#include "base/arena.h"
#include "base/integers.h"

#include <stdio.h>

/* The most columns of a row of the stage, and rows of it: with these all of a thread's memory stays in the second
 * cache. */
enum { COLUMNS = 64, ROWS = 256 };

static const char *refuse(const attn__canonical *canonical)
{
    if (canonical->contract.size > ATTN__SMALL_HEAD_MOST || canonical->value.size > ATTN__SMALL_HEAD_MOST)
        return "head size above 16";
    if (canonical->has_bias || canonical->has_mask || canonical->has_lens || canonical->problem.nbands ||
        canonical->has_dropout)
        return "has a bias, mask, lengths, bands or dropout";
    return attn__flash_refuse(canonical);
}

/* Padded channels are multiplied too; empty lanes are no dearer than those of a tile.  With 16 channels and longer rows
 * a tile, which loads less, is some hundredths faster. */
static double cost(const attn__canonical *canonical)
{
    int64_t most = attn__most(canonical->contract.size, canonical->value.size), padded = most <= 4   ? 4
                                                                                         : most <= 8 ? 8
                                                                                                     : 16;
    double pairs = (double)canonical->batch.size * (double)canonical->query.size * (double)canonical->key.size;
    bool long_rows = padded == 16 && canonical->key.size >= 192;
    return pairs * (long_rows ? 1.03 * (double)(canonical->contract.size + canonical->value.size) : (double)padded);
}

/* Elements of the last batch axis and of the channels form one run, in an operand. */
static bool joins(const attn__canonical *canonical, const attn__group *channels, size_t stride)
{
    const attn__axis *head = &canonical->batch.axis[canonical->batch.n - 1];
    return attn__offsets_adjacent(channels, stride) &&
           *(const int64_t *)(const void *)((const char *)head + stride) == channels->size;
}

/* The largest divisor of the last batch axis whose heads fit a row of the stage. */
static int64_t heads_together(const attn__canonical *canonical)
{
    int64_t n = canonical->batch.axis[canonical->batch.n - 1].dim.n, heads = 1;
    if (!joins(canonical, &canonical->contract, ATTN__STRIDE(dim.q)) ||
        !joins(canonical, &canonical->contract, ATTN__STRIDE(dim.k)) ||
        !joins(canonical, &canonical->value, ATTN__STRIDE(dim.v)) ||
        !joins(canonical, &canonical->value, ATTN__STRIDE(dim.o)))
        return 1;
    for (int64_t i = 2; i <= n && i * attn__most(canonical->contract.size, canonical->value.size) <= COLUMNS; i++)
        if (n % i == 0)
            heads = i;
    return heads;
}

/* True if every operand has whole lines to a row, pages apart. */
static bool keeps_rows(const attn__small_head *t, const attn__canonical *canonical)
{
    enum { LINE = 16, PAGE = 1024 }; /* floats */
    const attn_dim *query = &canonical->query.axis[0].dim, *key = &canonical->key.axis[0].dim;
    bool whole = t->heads * canonical->contract.size % LINE == 0 && t->heads * canonical->value.size % LINE == 0;
    return canonical->problem.dtype == ATTN_F32 && whole && canonical->query.n == 1 && canonical->key.n == 1 &&
           query->q != 0 && query->q % PAGE == 0 && key->k % PAGE == 0 && key->v % PAGE == 0 && !t->q_column &&
           !t->k_column && !t->v_column;
}

static const int64_t *column_table(const attn__group *group, size_t stride, int64_t **next)
{
    if (attn__offsets_adjacent(group, stride))
        return NULL;
    int64_t *table = *next;
    attn__offsets_fill(group, stride, 0, group->size, table);
    *next += group->size;
    return table;
}

static void fill(attn__small_head *t, const attn__canonical *canonical)
{
    int64_t most = attn__most(canonical->contract.size, canonical->value.size), queries = canonical->query.size,
            *next = t->tables;
    t->kernel = attn__small_head_for(canonical->isa);
    t->lanes = attn__online_softmax_for(canonical->isa);
    t->size = most <= 4 ? 0 : most <= 8 ? 1 : 2;
    t->channels = 4 << t->size;
    t->width = t->kernel->width[t->size];
    t->heads = heads_together(canonical);
    t->stage_ld = attn__round_up(t->heads * most, 16);
    t->key_block = attn__least(canonical->key.size, ROWS);
    t->query_blocks = (queries + ROWS - 1) / ROWS;
    t->query_block = attn__round_up((queries + t->query_blocks - 1) / t->query_blocks, t->width);
    t->query_blocks = (queries + t->query_block - 1) / t->query_block;
    t->q_column = column_table(&canonical->contract, ATTN__STRIDE(dim.q), &next);
    t->k_column = column_table(&canonical->contract, ATTN__STRIDE(dim.k), &next);
    t->v_column = column_table(&canonical->value, ATTN__STRIDE(dim.v), &next);
    t->o_column = column_table(&canonical->value, ATTN__STRIDE(dim.o), &next);
    t->keeps = keeps_rows(t, canonical);
}

size_t attn__small_head_divide(const attn__small_head *t, char *base, attn__small_head_scratch *s)
{
    attn__arena p = {base, 0};
    int64_t rows = attn__most(t->query_block, t->key_block), queries = t->heads * t->query_block;
    s->kept = attn__arena_take(&p, 1, sizeof *s->kept);
    for (int i = 0; i < ATTN__SMALL_HEAD_KEPT; i++)
        s->kept_rows[i] = attn__arena_take(&p, t->keeps ? rows * t->stage_ld : 0, sizeof(float));
    s->stage = attn__arena_take(&p, rows * t->stage_ld, sizeof(float));
    s->q = attn__arena_take(&p, queries * t->channels, sizeof(float));
    s->o = attn__arena_take(&p, queries * t->channels, sizeof(float));
    s->m = attn__arena_take(&p, queries, sizeof(float));
    s->l = attn__arena_take(&p, queries, sizeof(float));
    s->k = attn__arena_take(&p, t->heads * t->key_block * t->channels, sizeof(float));
    s->v = attn__arena_take(&p, t->heads * t->key_block * t->channels, sizeof(float));
    s->reach = attn__arena_take(&p, t->heads * t->channels, sizeof(float));
    s->p = attn__arena_take(&p, ATTN__SMALL_HEAD_STEP * t->width, sizeof(float));
    s->factor = attn__arena_take(&p, t->query_block, sizeof(float));
    s->at = attn__arena_take(&p, rows, sizeof(int64_t));
    s->stage_at = attn__arena_take(&p, rows, sizeof(int64_t));
    return p.used;
}

static attn_status plan(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe)
{
    size_t tables = 2 * (size_t)(canonical->contract.size + canonical->value.size) * sizeof(int64_t);
    attn__small_head *t = attn__alloc_zero(context, sizeof *t + tables);
    if (!t)
        return ATTN_ERROR_MEMORY;
    fill(t, canonical);
    recipe->data = t;
    attn__small_head_scratch unused;
    recipe->workspace = attn__size_mul((size_t)canonical->threads, attn__small_head_divide(t, NULL, &unused));
    snprintf(recipe->text, sizeof recipe->text, "%s heads of %d, %d together, blocks of %d queries x %d keys",
             attn__isa_text(t->kernel->isa), (int)t->channels, (int)t->heads, (int)t->query_block, (int)t->key_block);
    return ATTN_OK;
}

const attn__solver attn__solver_small_head = {
    .name = "small_head", .refuse = refuse, .cost = cost, .plan = plan, .apply = attn__small_head_forward};
