/* SPDX-License-Identifier: MIT
 *
 * flash_backward_pack.c - from the caller's strides and types to rows of floats, and back.
 */
#include "attend/flash_backward/flash_backward.h"
#include "attend/canonical/packed_sequences.h"

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

/* Rows of `n` channels, padded with zeros to `ld`.  False if any is infinite or NaN. */
bool attn__flash_backward_gather(const attn__flash_backward_plan *plan, const void *src, const int64_t *at,
                                 int64_t rows, const int64_t *channel, int64_t n, float *dst, int64_t ld)
{
    for (int64_t r = 0; r < rows && n < ld; r++)
        memset(dst + r * ld + n, 0, (size_t)(ld - n) * sizeof *dst);
    return plan->lanes->copy(src, plan->bf16 ? ATTN_BF16 : ATTN_F32, at, channel, rows, n, dst, ld);
}

void attn__flash_backward_prefetch_row(const attn__flash_backward_plan *plan, const void *data, const int64_t *at,
                                       int64_t r, int64_t rows, int64_t channels)
{
    enum { LINE = 64 };
    int64_t size = plan->bf16 ? 2 : 4;
    for (int64_t byte = 0; r < rows && byte < channels * size; byte += LINE)
        __builtin_prefetch((const char *)data + at[r] * size + byte, 1, 3);
}

/* dst = or += scale * src.  Rows go one by one, so that several may end in one place. */
void attn__flash_backward_scatter(const attn__flash_backward_plan *plan, void *dst, const int64_t *at, int64_t rows,
                                  const int64_t *channel, int64_t n, const float *src, int64_t ld, float scale,
                                  bool add)
{
    float *f32 = dst;
    uint16_t *bf16 = dst;
    for (int64_t r = 0; r < rows; r++, src += ld) {
        if (!channel)
            attn__flash_backward_prefetch_row(plan, dst, at, r + ATTN__FLASH_BACKWARD_PREFETCH_ROWS, rows, n);
        if (!channel && plan->bf16)
            plan->backward->store_bf16(bf16 + at[r], src, n, scale, add);
        else if (!channel)
            plan->backward->store(f32 + at[r], src, n, scale, add);
        else if (plan->bf16)
            for (int64_t c = 0; c < n; c++)
                plan->backward->store_bf16(bf16 + at[r] + channel[c], src + c, 1, scale, add);
        else
            for (int64_t c = 0; c < n; c++)
                f32[at[r] + channel[c]] = (add ? f32[at[r] + channel[c]] : 0.0f) + scale * src[c];
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

static void advance(attn_dim *at, const attn_dim *dim, int64_t index)
{
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
        advance(&found->at, &axis->dim, index);
        found->drop += (uint64_t)(index * axis->drop);
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

typedef struct target {
    void *array;
    int64_t base;
    const attn__group *rows;
    size_t stride;
    const int64_t *channel;
    int64_t n;
    const float *zeros;
} target;

static void zero_rows(const attn__flash_backward_plan *plan, const target *t, attn__flash_backward_scratch *m)
{
    for (int64_t i = 0; i < t->rows->size; i += plan->tile_q) {
        int64_t n = t->rows->size - i < plan->tile_q ? t->rows->size - i : plan->tile_q;
        attn__flash_backward_walk(t->rows, t->stride, i, n, t->base, m->q_at);
        attn__flash_backward_scatter(plan, t->array, m->q_at, n, t->channel, t->n, t->zeros, 0, 0.0f, false);
    }
}

static void zero_bias(const attn__canonical *canonical, const attn__flash_backward_plan *plan, float *dbias,
                      int64_t base, attn__flash_backward_scratch *m)
{
    for (int64_t i = 0; i < plan->nq; i++) {
        attn__flash_backward_walk(&canonical->query, ATTN__STRIDE(dim.dbias), i, 1, base, m->q_at);
        for (int64_t j = 0; j < plan->nk; j += plan->block_k) {
            int64_t n = plan->nk - j < plan->block_k ? plan->nk - j : plan->block_k;
            attn__flash_backward_walk(&canonical->key, ATTN__STRIDE(dim.dbias), j, n, m->q_at[0], m->k_at);
            for (int64_t c = 0; c < n; c++)
                dbias[m->k_at[c]] = 0.0f;
        }
    }
}

/* Clears those of one batch item but the ones that an earlier item reaches, too. */
static void zero_one(const attn__canonical *canonical, const attn__flash_backward_plan *plan, const attn_arrays *arrays,
                     const attn__flash_backward_item *found, attn__flash_backward_scratch *m)
{
    const attn_dim *at = &found->at;
    unsigned missing = plan->want & ~found->reached;
    if ((missing & ATTN__FLASH_BACKWARD_Q) && !plan->store_q)
        zero_rows(
            plan,
            &(target){arrays->dq, at->dq, &canonical->query, ATTN__STRIDE(dim.dq), plan->channels.dq, plan->d, m->q},
            m);
    if ((missing & ATTN__FLASH_BACKWARD_K) && !plan->store_kv)
        zero_rows(
            plan,
            &(target){arrays->dk, at->dk, &canonical->key, ATTN__STRIDE(dim.dk), plan->channels.dk, plan->d, m->q}, m);
    if ((missing & ATTN__FLASH_BACKWARD_V) && !plan->store_kv)
        zero_rows(
            plan,
            &(target){arrays->dv, at->dv, &canonical->key, ATTN__STRIDE(dim.dv), plan->channels.dv, plan->dv, m->dout},
            m);
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
