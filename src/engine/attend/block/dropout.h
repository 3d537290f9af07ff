/* SPDX-License-Identifier: MIT
 *
 * dropout.h - decides which weights dropout drops.  Each row (batch and query index) has a 64-bit hash, and each key
 * has a column number.  A pair is dropped if attn__dropout_bits(hash, column) < threshold (base/rng.h), with every
 * solver.  The weights that stay are multiplied by 1 / (1 - dropout probability).
 */
#ifndef ATTN_ATTEND_DROPOUT_H
#define ATTN_ATTEND_DROPOUT_H

#include "attend/block/rows.h"
#include "base/rng.h"

/* Returns 1 / (1 - p), the factor of the weights that dropout with probability p keeps. Without dropout p is 0. */
static inline double attn__dropout_factor(const attn__canonical *canonical)
{
    return 1 / (1 - canonical->problem.dropout);
}

/* Returns the dropout hash of a row. `row` is the sum of the row's indices times attn__axis.drop. */
static inline uint64_t attn__dropout_row(const attn__canonical *canonical, const attn__execution *arrays, uint64_t row)
{
    const attn_problem *p = &canonical->problem;
    return attn__dropout_key(p->seed + arrays->at.seed_offset, p->stream, attn__drop_row(arrays->rows, row));
}

/* Writes the dropout hashes of the rows of queries [first, first + count) of a batch index. */
void attn__dropout_rows(const attn__canonical *canonical, const attn__execution *arrays, int64_t batch, int64_t first,
                        int64_t count, uint64_t *key);
/* Writes the low and high 32 bits of the dropout hashes of queries. Pads `low` and `high` with copies of the last hash
 * to a multiple of `lanes`. */
void attn__dropout_lanes(const attn__canonical *canonical, const attn__execution *arrays, int64_t batch, int64_t first,
                         int64_t count, int64_t lanes, uint32_t *low, uint32_t *high);
void attn__dropout_columns(const attn__canonical *canonical, int64_t first, int64_t count, uint32_t *column);

#endif
