/* SPDX-License-Identifier: MIT
 *
 * small_sequence_heads.c - what both passes over short heads share: which heads, in which order, where their rows lie,
 * what a query sees.
 */
#include "attend/small_sequence/small_sequence_plan.h"

#include "attend/canonical/arena.h"
#include "base/integers.h"
#include "base/parallel.h"
#include "base/rng.h"

#include <stdio.h>
#include <string.h>

enum { ITEMS = 64 }; /* work for any number of threads */

static int64_t stride_of(const attn__group *group, size_t stride)
{
    int64_t step;
    memcpy(&step, (const char *)&group->axis[group->n - 1] + stride, sizeof step);
    return step;
}

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
    if (canonical->query.n > 1 || canonical->key.n > 1)
        return "several query or key axes";
    if (canonical->has_bias || canonical->has_mask)
        return "has a bias or a mask";
    if ((canonical->has_lens || canonical->problem.nbands) && canonical->problem.mask_fill != 0.0)
        return "masked keys take part";
    int gradients = canonical->backward ? 2 : 0;
    if (!adjacent(&canonical->contract, q, 2 + gradients) || !adjacent(&canonical->value, v, 2 + gradients))
        return "channels are not adjacent";
    return NULL;
}

size_t attn__small_sequence_divide(const attn__small_sequence *p, char *base, attn__small_sequence_scratch *m)
{
    attn__arena arena = {base, 0};
    int64_t channels = attn__most(p->channels, p->values), size = attn__most(p->queries, p->keys) * p->width;
    int64_t queries = attn__round_up(p->queries, p->kernel->lanes), keys = attn__round_up(p->keys, p->kernel->lanes);
    float **const rows[] = {&m->m, &m->l, &m->shrink, &m->lse, &m->delta};
    m->panel = attn__arena_take(&arena, channels * p->width, sizeof(float));
    m->s = attn__arena_take(&arena, size, sizeof(float));
    m->ds = attn__arena_take(&arena, size, sizeof(float));
    for (int i = 0; i < 5; i++)
        *rows[i] = attn__arena_take(&arena, queries, sizeof(float));
    m->from = attn__arena_take(&arena, queries, sizeof(int32_t));
    m->to = attn__arena_take(&arena, queries, sizeof(int32_t));
    m->index = attn__arena_take(&arena, keys, sizeof(int32_t));
    m->low = attn__arena_take(&arena, queries, sizeof(uint32_t));
    m->high = attn__arena_take(&arena, queries, sizeof(uint32_t));
    m->key = attn__arena_take(&arena, queries, sizeof(uint64_t));
    m->column = attn__arena_take(&arena, keys, sizeof(int32_t));
    m->alive = attn__arena_take(&arena, size, 1);
    m->range = attn__arena_take(&arena, queries, sizeof(attn__decode_range));
    m->clean = attn__arena_take(&arena, attn__most(p->queries, p->keys) * channels, sizeof(float));
    return arena.used;
}

attn_status attn__small_sequence_plan_make(attn_context *context, const attn__canonical *canonical,
                                           attn__recipe *recipe)
{
    attn__small_sequence *p = attn__alloc_zero(context, sizeof *p);
    if (!p)
        return ATTN_ERROR_MEMORY;
    p->kernel = attn__small_sequence_for(canonical->isa);
    p->backward = attn__softmax_backward_for(p->kernel->isa);
    p->lanes = attn__online_softmax_for(p->kernel->isa);
    p->queries = canonical->query.size;
    p->keys = canonical->key.size;
    p->channels = canonical->contract.size;
    p->values = canonical->value.size;
    p->width = attn__round_up(canonical->backward ? p->keys : p->queries, p->kernel->lanes);
    p->together = attn__most(1, attn__least(16, canonical->batch.size / ITEMS));
    p->limited = canonical->has_lens || canonical->problem.nbands;
    p->drop_below = attn__dropout_threshold(canonical->problem.dropout);
    p->drop_scale = (float)(1.0 / (1.0 - canonical->problem.dropout));
    attn__small_sequence_scratch unused;
    p->each = attn__small_sequence_divide(p, NULL, &unused);
    recipe->data = p;
    recipe->workspace = attn__size_mul((size_t)canonical->threads, p->each);
    snprintf(recipe->text, sizeof recipe->text, "%s %d queries x %d keys, %d heads at a time",
             attn__isa_text(p->kernel->isa), (int)p->queries, (int)p->keys, (int)p->together);
    return ATTN_OK;
}

attn__small_sequence_rows attn__small_sequence_rows_of(const void *base, int64_t at, int64_t next,
                                                       const attn__group *group, size_t stride, int64_t channels)
{
    float *start = (float *)(uintptr_t)base;
    return (attn__small_sequence_rows){start + at, stride_of(group, stride), start + next, group->size, channels};
}

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
        uint64_t row = h->at.drop + (uint64_t)(i * canonical->query.axis[0].drop);
        m->key[i] = attn__dropout_key(seed, canonical->problem.stream, attn__drop_row(&h->arrays->drop_rows, row));
        m->low[i] = (uint32_t)m->key[i];
        m->high[i] = (uint32_t)(m->key[i] >> 32);
    }
}

static bool is_finite(const float *x, int64_t n)
{
    float check = 0.0f;
    for (int64_t i = 0; i < n; i++)
        check += x[i] * 0.0f;
    return check == check;
}

/* Row i of x, for the pairs that count. */
static void add_row(const attn__small_sequence_sums *t, int64_t i, const uint8_t *alive, uint8_t bit)
{
    for (int64_t j = 0; j < t->out.rows; j++) {
        int64_t pair = i * t->along + j * t->across;
        float weight = t->w[pair] * (t->row_factor ? t->factor * t->row_factor[j] : t->factor);
        for (int64_t c = 0; alive[pair] & bit && c < t->out.channels; c++)
            t->out.at[j * t->out.step + c] += weight * t->x.at[i * t->x.step + c];
    }
}

/* Rows that are finite go the usual way, so that bits are the same whatever stands in those that are not seen. */
void attn__small_sequence_sum_guarded(const attn__small_sequence_head *h, const attn__small_sequence_sums *t,
                                      const uint8_t *alive, uint8_t bit)
{
    attn__small_sequence_sums clean = *t;
    clean.x.at = h->m.clean;
    clean.x.step = t->x.channels;
    for (int64_t i = 0; i < t->x.rows; i++) {
        const float *row = t->x.at + i * t->x.step;
        float *to = h->m.clean + i * clean.x.step;
        size_t bytes = (size_t)t->x.channels * sizeof *row;
        if (is_finite(row, t->x.channels))
            memcpy(to, row, bytes);
        else
            memset(to, 0, bytes);
    }
    h->plan->kernel->sum(&clean);
    for (int64_t i = 0; i < t->x.rows; i++)
        if (!is_finite(t->x.at + i * t->x.step, t->x.channels))
            add_row(t, i, alive, bit);
}

typedef struct job {
    const attn__canonical *canonical;
    const attn__small_sequence *plan;
    const attn_arrays *arrays;
    char *workspace;
    void (*run)(const attn__small_sequence_head *head);
} job;

/* The head that this thread will probably run after number i. */
static int64_t next_of(const job *j, int64_t i)
{
    return attn__least(i + 1, j->canonical->batch.size - 1);
}

/* The batch item with number `to`: mostly it is the next one along the last axis, which costs no divisions. */
static void go_on(const job *j, int64_t to, const attn__small_sequence_head *h, attn__flash_backward_item *found)
{
    const attn__axis *last = &j->canonical->batch.axis[j->canonical->batch.n - 1];
    if (to != h->number + 1 || to % last->dim.n == 0) {
        attn__flash_backward_item_find(j->canonical, to, 0, found);
        return;
    }
    *found = h->at;
    attn_dim *at = &found->at;
    at->q += last->dim.q;
    at->k += last->dim.k;
    at->v += last->dim.v;
    at->o += last->dim.o;
    at->lse += last->dim.lse;
    at->dout += last->dim.dout;
    at->dq += last->dim.dq;
    at->dk += last->dim.dk;
    at->dv += last->dim.dv;
    found->drop += (uint64_t)last->drop;
}

static void number_keys(const attn__small_sequence_head *h)
{
    int64_t step = h->canonical->key.axis[0].drop, padded = attn__round_up(h->plan->keys, h->plan->kernel->lanes);
    for (int64_t k = 0; k < padded; k++) {
        h->m.column[k] = (int32_t)(uint32_t)(uint64_t)(k * step);
        h->m.index[k] = (int32_t)k;
    }
}

static void run_item(void *user, int64_t item, int thread)
{
    const job *j = user;
    const attn__small_sequence *p = j->plan;
    int64_t first = item * p->together, end = attn__least(first + p->together, j->canonical->batch.size);
    attn__small_sequence_head h = {.canonical = j->canonical, .plan = p, .arrays = j->arrays, .number = first};
    attn__small_sequence_divide(p, j->workspace + (size_t)thread * p->each, &h.m);
    if (p->limited || j->canonical->has_dropout)
        number_keys(&h);
    attn__flash_backward_item_find(j->canonical, first, 0, &h.at);
    for (; h.number < end; h.number++, h.at = h.next) {
        go_on(j, next_of(j, h.number), &h, &h.next);
        j->run(&h);
    }
}

void attn__small_sequence_each(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                               void *workspace, void (*run)(const attn__small_sequence_head *head))
{
    job j = {canonical, recipe->data, arrays, workspace, run};
    attn__parallel_items(canonical->threads, attn__pieces(canonical->batch.size, j.plan->together), run_item, &j);
}
