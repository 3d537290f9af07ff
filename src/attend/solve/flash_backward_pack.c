/* SPDX-License-Identifier: MIT
 *
 * flash_backward_pack.c - from the caller's strides and types to rows of floats, and back.
 */
#include "attend/solve/flash_backward.h"
#include "attend/block/packed_sequences.h"
#include "base/integers.h"

#include <string.h>

/* at[i] = base + the offset of element begin + i of the group, i < n. */
void attn__flash_backward_walk(const attn__group *group, size_t stride, int64_t begin, int64_t n, int64_t base,
                               int64_t *at)
{
    attn__offsets_fill(group, stride, begin, n, at);
    for (int64_t i = 0; i < n; i++)
        at[i] += base;
}

void attn__flash_backward_index(const attn__group *group, int axis, int64_t begin, int64_t n, int64_t *index)
{
    for (int64_t i = 0; i < n; i++)
        index[i] = attn__offsets_index(group, axis, begin + i);
}

bool attn__flash_backward_gather(const attn__flash_backward_plan *plan, const attn__flash_backward_rows *x, float *to,
                                 int64_t ld)
{
    for (int64_t r = 0; r < x->rows && x->n < ld; r++)
        memset(to + r * ld + x->n, 0, (size_t)(ld - x->n) * sizeof *to);
    return plan->lanes->copy(x->data, plan->bf16 ? ATTN_BF16 : ATTN_F32, x->at, x->channel, x->rows, x->n, to, ld);
}

void attn__flash_backward_prefetch_row(const attn__flash_backward_plan *plan, const attn__flash_backward_rows *x,
                                       int64_t r)
{
    enum { LINE = 64 };
    int64_t size = plan->bf16 ? 2 : 4;
    for (int64_t byte = 0; r < x->rows && byte < x->n * size; byte += LINE)
        __builtin_prefetch((const char *)x->data + x->at[r] * size + byte, 1, 3);
}

void attn__flash_backward_scatter(const attn__flash_backward_plan *plan, const attn__flash_backward_rows *x,
                                  const float *from, int64_t ld, float scale, bool add)
{
    float *f32 = (float *)(uintptr_t)x->data;
    uint16_t *bf16 = (uint16_t *)(uintptr_t)x->data;
    for (int64_t r = 0; r < x->rows; r++, from += ld) {
        if (!x->channel)
            attn__flash_backward_prefetch_row(plan, x, r + ATTN__FLASH_BACKWARD_PREFETCH_ROWS);
        if (!x->channel && plan->bf16)
            plan->backward->store_bf16(bf16 + x->at[r], from, x->n, scale, add);
        else if (!x->channel)
            plan->backward->store(f32 + x->at[r], from, x->n, scale, add);
        else if (plan->bf16)
            for (int64_t c = 0; c < x->n; c++)
                plan->backward->store_bf16(bf16 + x->at[r] + x->channel[c], from + c, 1, scale, add);
        else
            for (int64_t c = 0; c < x->n; c++)
                f32[x->at[r] + x->channel[c]] = (add ? f32[x->at[r] + x->channel[c]] : 0.0f) + scale * from[c];
    }
}

/* Whether a requested gradient is broadcast along this BATCH axis, so that its items add to the same elements. */
bool attn__flash_backward_is_shared(const attn__canonical *canonical, const attn__axis *axis)
{
    unsigned with = canonical->problem.flags;
    const attn_dim *dim = &axis->dim;
    if (axis->packed) /* tokens are the sequence's own */
        return dim->n > 1 && (with & ATTN_WANT_DBIAS) && dim->dbias == 0;
    return dim->n > 1 && (((with & ATTN_WANT_DQ) && dim->dq == 0) || ((with & ATTN_WANT_DK) && dim->dk == 0) ||
                          ((with & ATTN_WANT_DV) && dim->dv == 0) || ((with & ATTN_WANT_DBIAS) && dim->dbias == 0));
}

void attn__flash_backward_item_advance(attn__flash_backward_item *item, const attn__axis *axis, int64_t index)
{
    attn_dim *at = &item->at;
    const attn_dim *dim = &axis->dim;
    at->q += index * dim->q;
    at->k += index * dim->k;
    at->v += index * dim->v;
    at->o += index * dim->o;
    at->bias += index * dim->bias;
    at->mask += index * dim->mask;
    at->blocks += index * dim->blocks;
    at->lens += index * dim->lens;
    at->lse += index * dim->lse;
    at->dq += index * dim->dq;
    at->dk += index * dim->dk;
    at->dv += index * dim->dv;
    at->dout += index * dim->dout;
    at->dbias += index * dim->dbias;
    item->drop += (uint64_t)(index * axis->drop);
    for (int i = 0; i < ATTN_MAX_RELATIVE; i++)
        item->table[i] += index * axis->table[i];
}

/* The batch item with number `item` among the independent ones and `shared` among those of one cell. */
void attn__flash_backward_item_find(const attn__canonical *canonical, int64_t item, int64_t shared,
                                    attn__flash_backward_item *found)
{
    memset(found, 0, sizeof *found);
    for (int a = canonical->batch.n - 1; a >= 0; a--) {
        const attn__axis *axis = &canonical->batch.axis[a];
        int64_t *number = attn__flash_backward_is_shared(canonical, axis) ? &shared : &item,
                index = *number % axis->dim.n;
        *number /= axis->dim.n;
        attn__flash_backward_item_advance(found, axis, index);
        if (axis->packed)
            found->sequence = index;
        if (index > 0)
            found->reached |= axis->packed ? (axis->dim.dbias ? 0u : ATTN__FLASH_BACKWARD_BIAS)
                                           : (axis->dim.dq ? 0u : ATTN__FLASH_BACKWARD_Q) |
                                                 (axis->dim.dk ? 0u : ATTN__FLASH_BACKWARD_K) |
                                                 (axis->dim.dv ? 0u : ATTN__FLASH_BACKWARD_V) |
                                                 (axis->dim.dbias ? 0u : ATTN__FLASH_BACKWARD_BIAS);
    }
}

/* Rows of a gradient of one batch item. */
typedef struct target {
    void *array;
    int64_t base;
    const attn__group *rows;
    size_t stride;
    const int64_t *channel;
    int64_t n;
} target;

static void zero_rows(const attn__flash_backward_plan *plan, const target *t, attn__flash_backward_scratch *m)
{
    const float *zeros = t->n == plan->d ? m->q : m->dout;
    for (int64_t i = 0; i < t->rows->size; i += plan->tile_q) {
        int64_t n = attn__least(t->rows->size - i, plan->tile_q);
        attn__flash_backward_rows rows = {t->array, m->query_at.q, n, t->channel, t->n};
        attn__flash_backward_walk(t->rows, t->stride, i, n, t->base, m->query_at.q);
        attn__flash_backward_scatter(plan, &rows, zeros, 0, 0.0f, false);
    }
}

static void zero_bias(const attn__canonical *canonical, const attn__flash_backward_plan *plan, float *dbias,
                      int64_t base, attn__flash_backward_scratch *m)
{
    for (int64_t i = 0; i < plan->nq; i++) {
        attn__flash_backward_walk(&canonical->query, ATTN__STRIDE(dim.dbias), i, 1, base, m->query_at.q);
        for (int64_t j = 0; j < plan->nk; j += plan->block_k) {
            int64_t n = plan->nk - j < plan->block_k ? plan->nk - j : plan->block_k;
            attn__flash_backward_walk(&canonical->key, ATTN__STRIDE(dim.dbias), j, n, m->query_at.q[0], m->key_at.k);
            for (int64_t c = 0; c < n; c++)
                dbias[m->key_at.k[c]] = 0.0f;
        }
    }
}

/* Clears those of one batch item but the ones that an earlier item reaches, too. */
static void zero_one(const attn__canonical *canonical, const attn__flash_backward_plan *plan, const attn_arrays *arrays,
                     const attn__flash_backward_item *found, attn__flash_backward_scratch *m)
{
    const attn_dim *at = &found->at;
    unsigned missing = plan->want & ~found->reached;
    const attn__group *query = &canonical->query, *key = &canonical->key;
    const attn__flash_backward_channels *channels = &plan->channels;
    target dq = {arrays->dq, at->dq, query, ATTN__STRIDE(dim.dq), channels->dq, plan->d};
    target dk = {arrays->dk, at->dk, key, ATTN__STRIDE(dim.dk), channels->dk, plan->d};
    target dv = {arrays->dv, at->dv, key, ATTN__STRIDE(dim.dv), channels->dv, plan->dv};
    if ((missing & ATTN__FLASH_BACKWARD_Q) && !plan->store_q)
        zero_rows(plan, &dq, m);
    if ((missing & ATTN__FLASH_BACKWARD_K) && !plan->store_kv)
        zero_rows(plan, &dk, m);
    if ((missing & ATTN__FLASH_BACKWARD_V) && !plan->store_kv)
        zero_rows(plan, &dv, m);
}

/* Clears the gradients that one independent item adds into. */
void attn__flash_backward_zero(const attn__canonical *canonical, const attn__flash_backward_plan *plan,
                               const attn_arrays *arrays, int64_t item, attn__flash_backward_scratch *m)
{
    memset(m->q, 0, (size_t)plan->dp * sizeof(float));
    memset(m->dout, 0, (size_t)plan->dvp * sizeof(float));
    for (int64_t s = 0; s < plan->shared; s++) {
        attn__flash_backward_item found;
        attn__sequence one;
        attn__flash_backward_item_find(canonical, item, s, &found);
        if (attn__is_packed(canonical)) {
            attn__sequence_at(&one, canonical, arrays, found.sequence);
            zero_one(&one.canonical, plan, &one.arrays, &found, m);
        } else {
            zero_one(canonical, plan, arrays, &found, m);
        }
        if (plan->want & ~found.reached & ATTN__FLASH_BACKWARD_BIAS)
            zero_bias(canonical, plan, arrays->dbias, found.at.dbias, m);
    }
}
