/* SPDX-License-Identifier: MIT
 *
 * dropout.h - which weights dropout drops: a key for each row (batch and query index), a column for each key, the
 * threshold, and the factor of those that stay.  A pair is dropped if attn__dropout_bits(key, column) < threshold
 * (base/rng.h), with every solver.
 */
#ifndef ATTN_ATTEND_DROPOUT_H
#define ATTN_ATTEND_DROPOUT_H

#include "attend/block/rows.h"
#include "base/rng.h"

/* 1 / (1 - p); 1 without dropout. */
static inline double attn__dropout_factor(const attn__canonical *canonical)
{
    return 1 / (1 - canonical->problem.dropout);
}

/* Within the library, the first reserved field points to the rows of a shard (attn__plan_execute). */
static inline const attn__drop_rows *attn__dropout_shard_rows(const attn_arrays *arrays)
{
    return arrays->reserved[0];
}

/* The key of the row whose indices times attn__axis.drop sum to `row`. */
static inline uint64_t attn__dropout_row(const attn__canonical *canonical, const attn_arrays *arrays, uint64_t row)
{
    const attn_problem *p = &canonical->problem;
    return attn__dropout_key(p->seed + arrays->seed_offset, p->stream,
                             attn__drop_row(attn__dropout_shard_rows(arrays), row));
}

/* Keys of the rows of queries [first, first + count) of a batch index. */
void attn__dropout_rows(const attn__canonical *canonical, const attn_arrays *arrays, int64_t batch, int64_t first,
                        int64_t count, uint64_t *key);
/* The keys' halves, padded to a multiple of `lanes` with copies of the last half. */
void attn__dropout_lanes(const attn__canonical *canonical, const attn_arrays *arrays, int64_t batch, int64_t first,
                         int64_t count, int64_t lanes, uint32_t *low, uint32_t *high);
/* Drops weights p[keys][width] of queries in lanes, whose keys are attn__dropout_lanes'; nothing without dropout. */
static inline void attn__dropout_apply(const attn__canonical *canonical, const attn__online_softmax_kernel *lanes,
                                       float *p, int64_t keys, int64_t width, const uint32_t *low, const uint32_t *high,
                                       const uint32_t *column)
{
    attn__lane_dropout dropout = {
        p, keys, width, low, high, column, attn__dropout_threshold(canonical->problem.dropout)};
    if (canonical->has_dropout)
        lanes->dropout(&dropout);
}

/* A tile's dropout as an argument of kernels/softmax_backward; empty without dropout. */
static inline void attn__dropout_tile(const attn__canonical *canonical, const uint64_t *key, const uint32_t *column,
                                      attn__softmax_backward_args *args)
{
    if (!canonical->has_dropout)
        return;
    args->drop_key = key;
    args->drop_column = (const int32_t *)column;
    args->drop_below = attn__dropout_threshold(canonical->problem.dropout);
    args->drop_scale = (float)attn__dropout_factor(canonical);
}

/* Columns of keys [first, first + count). */
void attn__dropout_columns(const attn__canonical *canonical, int64_t first, int64_t count, uint32_t *column);

#endif
