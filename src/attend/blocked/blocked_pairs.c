/* SPDX-License-Identifier: MIT
 * What single pairs of a tile have beside their dot product: softcap, bias, mask, dropout. */
#include "attend/blocked/blocked.h"

#include "attend/canonical/element.h"
#include "attend/canonical/offsets.h"
#include "base/rng.h"

#include <math.h>

static int64_t *along_keys(const attn__blocked *b, int64_t place)
{
    return (int64_t *)(void *)attn__blocked_at(b, place);
}

void attn__blocked_find_pairs(attn__blocked *b, const attn__blocked_tile *t)
{
    const attn__canonical *canonical = b->canonical;
    const attn__blocked_places *at = &b->plan->at;
    const struct {
        bool used;
        size_t stride;
        int64_t place;
    } parts[] = {{canonical->has_bias, ATTN__STRIDE(dim.bias), at->bias_at},
                 {canonical->problem.flags & ATTN_WANT_DBIAS, ATTN__STRIDE(dim.dbias), at->dbias_at},
                 {canonical->has_mask, ATTN__STRIDE(dim.mask), at->mask_at},
                 {canonical->has_dropout, ATTN__STRIDE(drop), at->drop_at}};
    for (int i = 0; i < 4; i++) {
        if (parts[i].used)
            attn__offsets_fill(&canonical->key, parts[i].stride, t->key, t->keys, along_keys(b, parts[i].place));
    }
}

static int64_t row_offset(const attn__blocked *b, size_t stride, int64_t query)
{
    return attn__offsets_one(&b->canonical->batch, stride, b->batch) +
           attn__offsets_one(&b->canonical->query, stride, query);
}

/* s = cap tanh(s / cap), and its derivative. */
static void cap_row(double cap, double *s, double *slope, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        double x = tanh(s[j] / cap);
        s[j] = cap * x;
        slope[j] = 1 - x * x;
    }
}

void attn__blocked_adjust(attn__blocked *b, const attn__blocked_tile *t, int64_t i, double *s)
{
    const attn__canonical *canonical = b->canonical;
    const attn__blocked_places *at = &b->plan->at;
    if (canonical->problem.softcap != 0)
        cap_row(canonical->problem.softcap, s, attn__blocked_at(b, at->slope) + i * ATTN__BLOCKED_KEYS, t->keys);
    if (canonical->has_bias) {
        const int64_t *key = along_keys(b, at->bias_at), row = row_offset(b, ATTN__STRIDE(dim.bias), t->query + i);
        const double *bias = (const double *)b->arrays->bias + row;
        for (int64_t j = 0; j < t->keys; j++)
            s[j] += bias[key[j]];
    }
    if (canonical->has_mask) {
        const int64_t *key = along_keys(b, at->mask_at), row = row_offset(b, ATTN__STRIDE(dim.mask), t->query + i);
        const uint8_t *mask = b->arrays->mask + row;
        for (int64_t j = 0; j < t->keys; j++)
            s[j] = mask[key[j]] ? s[j] : -(double)INFINITY;
    }
}

void attn__blocked_drop(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, double *x)
{
    const attn__canonical *canonical = b->canonical;
    const attn_problem *p = &canonical->problem;
    if (!canonical->has_dropout)
        return;
    const int64_t *column = along_keys(b, b->plan->at.drop_at);
    uint64_t row = (uint64_t)row_offset(b, ATTN__STRIDE(drop), t->query + i);
    uint64_t key =
        attn__dropout_key(p->seed + b->arrays->seed_offset, p->stream, attn__drop_row(&b->arrays->drop_rows, row));
    uint32_t threshold = attn__dropout_threshold(p->dropout);
    double factor = 1 / (1 - p->dropout);
    for (int64_t j = 0; j < t->keys; j++)
        x[j] = attn__dropout_bits(key, (uint32_t)column[j]) < threshold ? 0 : x[j] * factor;
}
