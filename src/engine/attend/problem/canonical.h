/* SPDX-License-Identifier: MIT
 *
 * canonical.h - a checked problem in canonical form. Solvers get problems in this form only.
 *
 * Defaults are resolved, and dims of length 1 are dropped.  Dims of a role that are adjacent in memory for every
 * operand are merged.  BATCH dims are ordered by stride, outermost first.  A dim that a band, a window, a table, the
 * lengths or a pick refers to is never merged.  A BATCH dim along which k, v, w and the tables have stride 0 only
 * repeats queries (grouped heads). It may become a QUERY dim.  Every group has at least one dim: a role without dims
 * gets one of length 1.
 *
 * Dropout identifies a pair by the caller's indices, whatever the order here.  Its row is the sum of index * drop over
 * the BATCH and QUERY dims, and its column is the same sum over the KEY dims.
 */
#ifndef ATTN_ATTEND_CANONICAL_H
#define ATTN_ATTEND_CANONICAL_H

#include "attn/attn.h"
#include "attend/problem/execution.h"
#include "base/cpu.h"
#include "base/caches.h"

/* Features that only some solvers support. Each is a bit of attn__canonical.extras. */
enum {
    ATTN__PACKED = 1,
    ATTN__SOFTCAP = 2,
    ATTN__SINKS = 4,
    ATTN__DLSE = 8,
    ATTN__BIAS_MEETS = 16,
    ATTN__BATCH_INVARIANT = 32,
    ATTN__BLOCKS = 64,
    ATTN__BF16_KEYS = 128,
    ATTN__TOP_K = 256 /* only the top_k largest scores of a row have weights; a hardmax has top_k = 1 here */
};

typedef struct attn__axis {
    attn_dim dim;                     /* length and strides; its role is that of the group */
    int64_t table[ATTN_MAX_RELATIVE]; /* stride in each relative table; 0 for QUERY and KEY */
    int64_t drop;                     /* factor of the index in the dropout row or column number */
    int pick;                         /* index into problem.picks, or -1 */
    bool packed; /* the BATCH axis of packed sequences, whose strides are 0 because its index selects tokens */
    int source;  /* the dim of the problem that became this axis, or -1 */
} attn__axis;

typedef struct attn__group {
    int n;
    int64_t size; /* product of the axes' lengths */
    attn__axis axis[ATTN_MAX_DIMS];
} attn__group;

typedef struct attn__canonical {
    attn_problem problem; /* the caller's problem. Defaults are resolved (scale, width, step, dilation, end, gradient
                           * strides). query_dim, key_dim and lens_dim index the groups `query` and `key`, and
                           * packed.batch_dim indexes `batch`. */
    attn__group batch, query, key, contract, value;
    bool backward;
    int threads;
    attn__isa isa;
    attn__caches caches;
    /* These fields are derived from the fields above. */
    bool has_bias, has_mask, has_lens, has_blocks, has_dropout;
    unsigned extras;     /* bits such as ATTN__PACKED */
    bool needs_row_scan; /* a row may have no keys, because of lens, mask, bands, or an empty key axis */
} attn__canonical;

static inline const attn__group *attn__group_of(const attn__canonical *canonical, attn_role role)
{
    const attn__group *const groups[] = {[ATTN_ROLE_BATCH] = &canonical->batch,
                                         [ATTN_ROLE_QUERY] = &canonical->query,
                                         [ATTN_ROLE_KEY] = &canonical->key,
                                         [ATTN_ROLE_CONTRACT] = &canonical->contract,
                                         [ATTN_ROLE_VALUE] = &canonical->value};
    return groups[role];
}

/* Reports whether weights are exponentials. A hardmax counts too, because the softmax weight of its only key is 1. */
static inline bool attn__is_softmax(const attn__canonical *canonical)
{
    attn_normalization normalization = canonical->problem.normalization;
    return normalization == ATTN_NORMALIZATION_SOFTMAX || normalization == ATTN_NORMALIZATION_HARDMAX;
}

/* Reports whether weights are not divided by anything, so that the outputs of parts of the keys are added. */
static inline bool attn__is_sum(const attn__canonical *canonical)
{
    attn_normalization normalization = canonical->problem.normalization;
    return normalization == ATTN_NORMALIZATION_NONE || normalization == ATTN_NORMALIZATION_SIGMOID;
}

/* Returns the group of a role, so that the caller can change it. */
static inline attn__group *attn__group_at(attn__canonical *canonical, attn_role role)
{
    return (attn__group *)(uintptr_t)attn__group_of(canonical, role);
}

#endif
