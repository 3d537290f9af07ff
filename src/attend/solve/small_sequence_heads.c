/* SPDX-License-Identifier: MIT
 *
 * small_sequence_heads.c - what both passes over short heads share: which heads, in which order, what a query sees.
 */
#include "attend/solve/small_sequence_plan.h"

#include "base/arena.h"
#include "base/integers.h"
#include "base/parallel.h"
#include "base/rng.h"

#include <stdio.h>
#include <string.h>

enum { ITEMS = 64 }; /* work for any number of threads */

static bool adjacent(const attn__group *group, const size_t *strides, int n)
{
    bool all = true;
    for (int i = 0; i < n; i++)
        all = all && attn__offsets_adjacent(group, strides[i]);
    return all;
}

const char *attn__small_sequence_refuse(const attn__canonical *canonical)
{
    static const size_t q[] = {ATTN__STRIDE(dim.q), ATTN__STRIDE(dim.k), ATTN__STRIDE(dim.dq), ATTN__STRIDE(dim.dk)};
    static const size_t v[] = {ATTN__STRIDE(dim.v), ATTN__STRIDE(dim.o), ATTN__STRIDE(dim.dout), ATTN__STRIDE(dim.dv)};
    if (canonical->query.size > ATTN__SMALL_SEQUENCE_ROWS || canonical->key.size > ATTN__SMALL_SEQUENCE_ROWS)
        return "more than 96 queries or keys";
    if (canonical->contract.size > ATTN__SMALL_SEQUENCE_CHANNELS ||
        canonical->value.size > ATTN__SMALL_SEQUENCE_CHANNELS)
        return "heads of more than 256 channels";
    if (canonical->problem.dtype != ATTN_F32)
        return "f32 only";
    bool limited = canonical->has_lens || canonical->problem.nbands;
    if (limited && (canonical->query.n > 1 || canonical->key.n > 1))
        return "lengths or bands with several query or key axes";
    if ((limited || canonical->has_mask) && canonical->problem.mask_fill != 0.0)
        return "masked keys take part";
    int gradients = canonical->backward ? 2 : 0;
    if (!adjacent(&canonical->contract, q, 2 + gradients) || !adjacent(&canonical->value, v, 2 + gradients))
        return "channels are not adjacent";
    return NULL;
}

size_t attn__small_sequence_divide(const attn__small_sequence *p, char *base, attn__small_sequence_scratch *m)
{
    static const attn__operand walked[] = {ATTN__OP_Q, ATTN__OP_K, ATTN__OP_V, ATTN__OP_DOUT};
    attn__arena arena = {base, 0};
    int64_t most = attn__most(p->queries, p->keys), channels = attn__most(p->channels, p->values);
    int64_t size = most * p->width;
    int64_t queries = attn__round_up(p->queries, p->kernel->lanes);
    float **const rows[] = {&m->m, &m->l, &m->shrink, &m->lse, &m->delta};
    m->panel = attn__arena_take(&arena, channels * p->width, sizeof(float));
    m->s = attn__arena_take(&arena, size, sizeof(float));
    m->ds = attn__arena_take(&arena, size, sizeof(float));
    m->bias = attn__arena_take(&arena, p->has_bias ? size : 0, sizeof(float));
    m->flags = attn__arena_take(&arena, p->has_mask ? size : 0, sizeof(float));
    m->mask = attn__arena_take(&arena, p->has_mask ? size : 0, 1);
    m->dbias = attn__arena_take(&arena, p->wants_dbias ? size : 0, sizeof(float));
    for (int i = 0; i < 5; i++)
        *rows[i] = attn__arena_take(&arena, queries, sizeof(float));
    m->from = attn__arena_take(&arena, queries, sizeof(int32_t));
    m->to = attn__arena_take(&arena, queries, sizeof(int32_t));
    m->low = attn__arena_take(&arena, queries, sizeof(uint32_t));
    m->high = attn__arena_take(&arena, queries, sizeof(uint32_t));
    m->key = attn__arena_take(&arena, queries, sizeof(uint64_t));
    m->alive = attn__arena_take(&arena, size, 1);
    m->range = attn__arena_take(&arena, queries, sizeof(attn__decode_range));
    m->clean = attn__arena_take(&arena, most * channels, sizeof(float));
    for (size_t i = 0; i < sizeof walked / sizeof *walked; i++)
        m->copy[walked[i]] = attn__arena_take(&arena, p->copies ? most * channels : 0, sizeof(float));
    return arena.used;
}

/* ------------------------------------------------------------------------------------------ the order of heads */

/* Whether heads along a batch axis share the bias and the mask. */
static bool shares_pairs(const attn__small_sequence *p, const attn_dim *dim)
{
    return (!p->has_bias || dim->bias == 0) && (!p->has_mask || dim->mask == 0);
}

/* 0: heads along the axis have other gradients of the bias; 1: they share it; 2: also the bias and the mask. */
static int how_shared(const attn__small_sequence *p, const attn_dim *dim)
{
    return p->wants_dbias && dim->dbias != 0 ? 0 : 1 + shares_pairs(p, dim);
}

/* Axes along which heads share the gradient of the bias become the innermost, the last of them those with the same bias and mask. */
static void order_axes(const attn__group *batch, attn__small_sequence *p)
{
    int n = 0;
    for (int sharing = 0; sharing < 3; sharing++)
        for (int a = 0; a < batch->n; a++)
            if (sharing == how_shared(p, &batch->axis[a].dim))
                p->order[n++] = a;
    int64_t weight = 1;
    for (int a = batch->n - 1; a >= 0; a--) {
        p->weight[a] = weight;
        weight *= batch->axis[a].dim.n;
    }
}

static void divide_work(const attn__group *batch, attn__small_sequence *p)
{
    p->sharing = batch->size;
    p->together = attn__most(1, attn__least(16, batch->size / ITEMS));
    if (p->wants_dbias && batch->size > 0) {
        for (int a = 0; a < batch->n; a++)
            p->sharing /= how_shared(p, &batch->axis[a].dim) > 0 ? 1 : batch->axis[a].dim.n;
        int64_t parts = attn__most(1, ITEMS / (batch->size / p->sharing));
        p->together = attn__pieces(p->sharing, attn__least(parts, p->sharing));
    }
    p->parts = attn__pieces(p->sharing, p->together);
    p->items = p->sharing > 0 ? batch->size / p->sharing * p->parts : 0;
    p->joins = p->wants_dbias && p->parts > 1;
}

/* Divides `base` into arrays of offsets and returns the bytes used; NULL: only counts them. */
static size_t divide_offsets(attn__small_sequence *p, char *base)
{
    attn__arena arena = {base, 0};
    int64_t queries = attn__round_up(p->queries, p->kernel->lanes), keys = attn__round_up(p->keys, p->kernel->lanes);
    for (attn__operand op = 0; op < ATTN__OPERANDS; op++) {
        int roles = attn__operand_table[op].roles;
        p->query_at[op] = attn__arena_take(&arena, roles & ATTN__IN_QUERY ? queries : 0, sizeof(int64_t));
        p->key_at[op] = attn__arena_take(&arena, roles & ATTN__IN_KEY ? keys : 0, sizeof(int64_t));
    }
    p->drop_row = attn__arena_take(&arena, p->queries, sizeof(int64_t));
    p->drop_column = attn__arena_take(&arena, keys, sizeof(int32_t));
    p->index = attn__arena_take(&arena, keys, sizeof(int32_t));
    return arena.used;
}

/* Of all of a group, and the last one again up to the next multiple of the lanes. */
static void fill(const attn__group *group, size_t stride, int64_t lanes, int64_t *at)
{
    attn__offsets_fill(group, stride, 0, group->size, at);
    for (int64_t i = group->size; group->size > 0 && i < attn__round_up(group->size, lanes); i++)
        at[i] = at[group->size - 1];
}

static void fill_offsets(const attn__canonical *canonical, attn__small_sequence *p)
{
    const attn__group *query = &canonical->query, *key = &canonical->key;
    for (attn__operand op = 0; op < ATTN__OPERANDS; op++) {
        int roles = attn__operand_table[op].roles;
        const attn__group *group = roles & ATTN__IN_QUERY ? query : key;
        p->of[op] = (attn__small_sequence_rows){.step = attn__stride(&group->axis[group->n - 1].dim, op),
                                                .row_at = roles & ATTN__IN_QUERY ? p->query_at[op] : p->key_at[op],
                                                .rows = group->size,
                                                .channels = roles & ATTN__IN_VALUE ? p->values : p->channels};
        size_t stride = offsetof(attn__axis, dim) + attn__operand_table[op].offset;
        if (roles & ATTN__IN_QUERY)
            fill(query, stride, p->kernel->lanes, p->query_at[op]);
        if (roles & ATTN__IN_KEY)
            fill(key, stride, p->kernel->lanes, p->key_at[op]);
    }
    attn__offsets_fill(query, ATTN__STRIDE(drop), 0, p->queries, p->drop_row);
    for (int64_t k = 0; k < attn__round_up(p->keys, p->kernel->lanes); k++) {
        int64_t column = attn__offsets_one(key, ATTN__STRIDE(drop), attn__least(k, p->keys - 1));
        p->drop_column[k] = (int32_t)(uint32_t)(uint64_t)column;
        p->index[k] = (int32_t)k;
    }
}

static attn__small_sequence make(const attn__canonical *canonical)
{
    attn__small_sequence p = {.kernel = attn__small_sequence_for(canonical->isa),
                              .queries = canonical->query.size,
                              .keys = canonical->key.size,
                              .channels = canonical->contract.size,
                              .values = canonical->value.size,
                              .limited = canonical->has_lens || canonical->problem.nbands,
                              .has_bias = canonical->has_bias,
                              .has_mask = canonical->has_mask,
                              .wants_dbias = canonical->backward && (canonical->problem.flags & ATTN_WANT_DBIAS),
                              .copies = canonical->query.n > 1 || canonical->key.n > 1,
                              .drop_below = attn__dropout_threshold(canonical->problem.dropout),
                              .drop_scale = (float)(1.0 / (1.0 - canonical->problem.dropout))};
    attn__small_sequence_scratch unused;
    p.backward = attn__softmax_backward_for(p.kernel->isa);
    p.lanes = attn__online_softmax_for(p.kernel->isa);
    p.width = attn__round_up(canonical->backward ? p.keys : p.queries, p.kernel->lanes);
    order_axes(&canonical->batch, &p);
    divide_work(&canonical->batch, &p);
    p.each = attn__small_sequence_divide(&p, NULL, &unused);
    return p;
}

attn_status attn__small_sequence_plan_make(attn_context *context, const attn__canonical *canonical,
                                           attn__recipe *recipe)
{
    attn__small_sequence made = make(canonical), *p;
    size_t head = (size_t)attn__round_up((int64_t)sizeof *p, 64);
    char *memory = attn__alloc(context, head + divide_offsets(&made, NULL));
    if (!memory)
        return ATTN_ERROR_MEMORY;
    recipe->data = p = memcpy(memory, &made, sizeof made);
    divide_offsets(p, memory + head);
    fill_offsets(canonical, p);
    size_t sums = p->joins ? (size_t)(p->queries * p->width) * sizeof(float) : 0;
    recipe->workspace =
        attn__size_add(attn__size_mul((size_t)canonical->threads, p->each), attn__size_mul((size_t)p->items, sums));
    snprintf(recipe->text, sizeof recipe->text, "%s %d queries x %d keys, %d heads at a time",
             attn__isa_text(p->kernel->isa), (int)p->queries, (int)p->keys, (int)p->together);
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------------- one head */

void attn__small_sequence_limits(const attn__small_sequence_head *h)
{
    const attn__canonical *canonical = h->canonical;
    const attn__small_sequence_scratch *m = &h->m;
    int64_t padded = attn__round_up(h->plan->queries, h->plan->kernel->lanes);
    if (h->plan->limited)
        attn__decode_find_ranges(canonical, h->arrays->lens, h->number, 0, h->plan->keys, m->range);
    for (int64_t i = 0; i < padded; i++) {
        int64_t row = attn__least(i, h->plan->queries - 1);
        m->from[i] = h->plan->limited ? (int32_t)m->range[row].from : 0;
        m->to[i] = (int32_t)(h->plan->limited ? m->range[row].to : h->plan->keys);
    }
    if (!canonical->has_dropout)
        return;
    uint64_t seed = canonical->problem.seed + h->arrays->seed_offset;
    for (int64_t i = 0; i < h->plan->queries; i++) {
        uint64_t row = h->now.drop + (uint64_t)h->plan->drop_row[i];
        m->key[i] = attn__dropout_key(seed, canonical->problem.stream, attn__drop_row(&h->arrays->drop_rows, row));
        m->low[i] = (uint32_t)m->key[i];
        m->high[i] = (uint32_t)(m->key[i] >> 32);
    }
}

/* Starts with head `number` in the plan's order. */
static void locate(attn__small_sequence_head *h, int64_t number)
{
    const attn__group *batch = &h->canonical->batch;
    for (int i = batch->n - 1; i >= 0; i--) {
        const attn__axis *axis = &batch->axis[h->plan->order[i]];
        h->index[i] = number % axis->dim.n;
        number /= axis->dim.n;
        attn__flash_backward_item_advance(&h->now, axis, h->index[i]);
        h->number += h->index[i] * h->plan->weight[h->plan->order[i]];
    }
    h->next = h->now;
}

/* Moves h->next to the head that follows, from the last one to the first; returns by how much its number grows. */
static int64_t advance(attn__small_sequence_head *h)
{
    int64_t by = 0;
    for (int i = h->canonical->batch.n - 1; i >= 0; i--) {
        const attn__axis *axis = &h->canonical->batch.axis[h->plan->order[i]];
        bool over = ++h->index[i] == axis->dim.n;
        int64_t step = over ? 1 - axis->dim.n : 1;
        attn__flash_backward_item_advance(&h->next, axis, step);
        by += step * h->plan->weight[h->plan->order[i]];
        if (!over)
            break;
        h->index[i] = 0;
    }
    return by;
}

typedef struct job {
    const attn__canonical *canonical;
    const attn__small_sequence *plan;
    const attn_arrays *arrays;
    char *workspace;
    float *parts; /* of the gradient of the bias: [items][queries][width] */
    void (*run)(attn__small_sequence_head *head);
} job;

static void begin(const job *j, int64_t number, int thread, attn__small_sequence_head *h)
{
    const attn__small_sequence *p = j->plan;
    size_t size = (size_t)(attn__most(p->queries, p->keys) * p->width) * sizeof(float);
    *h = (attn__small_sequence_head){.canonical = j->canonical, .plan = p, .arrays = j->arrays};
    attn__small_sequence_divide(p, j->workspace + (size_t)thread * p->each, &h->m);
    if (p->has_bias)
        memset(h->m.bias, 0, size); /* columns without a key are read */
    if (p->has_mask)
        memset(h->m.mask, 0, size / sizeof(float));
    if (p->wants_dbias)
        memset(h->m.dbias, 0, size);
    locate(h, number);
}

static void run_item(void *user, int64_t item, int thread)
{
    const job *j = user;
    const attn__small_sequence *p = j->plan;
    int64_t at = item % p->parts * p->together, end = attn__least(at + p->together, p->sharing);
    attn__small_sequence_head h;
    begin(j, item / p->parts * p->sharing + at, thread, &h);
    while (true) {
        int64_t by = advance(&h);
        j->run(&h);
        if (++at == end)
            break;
        h.now = h.next;
        h.number += by;
    }
    if (p->wants_dbias)
        attn__small_sequence_store_dbias(&h, j->parts, item);
}

static void join_parts(void *user, int64_t number, int thread)
{
    const job *j = user;
    attn__small_sequence_head h;
    begin(j, number * j->plan->sharing, thread, &h);
    attn__small_sequence_join_dbias(&h, j->parts, number * j->plan->parts);
}

void attn__small_sequence_each(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                               void *workspace, void (*run)(attn__small_sequence_head *head))
{
    const attn__small_sequence *p = recipe->data;
    float *parts = (float *)(void *)((char *)workspace + (size_t)canonical->threads * p->each);
    job j = {canonical, p, arrays, workspace, parts, run};
    attn__parallel_items(canonical->threads, p->items, run_item, &j);
    if (p->joins)
        attn__parallel_items(canonical->threads, p->items / p->parts, join_parts, &j);
}
