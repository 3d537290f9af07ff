/* SPDX-License-Identifier: MIT
 *
 * scores.h - what becomes of a score between the two products, f32 and in powers of two: softcap, bias, the score of a
 * masked key, sinks, the running maximum and sum up to the log-sum-exp, and, backward, the way back from that.
 *
 * A bias is read by rows of queries (keys are the lanes) or with queries in the lanes; running numbers are per query.
 * Masks are visible.h's.
 */
#ifndef ATTN_ATTEND_SCORES_H
#define ATTN_ATTEND_SCORES_H

#include "attend/block/rows.h"
#include "base/constants.h"
#include "kernels/online_softmax/online_softmax.h"
#include "kernels/softmax_backward/softmax_backward.h"

#include <math.h>

/* The factor of a dot product that gives scores in powers of two. */
static inline float attn__score_factor(const attn__canonical *canonical)
{
    return (float)(canonical->problem.scale * ATTN__LOG2E);
}

/* The softcap of such scores; 0: none.  Both kernels take it: online_softmax's softcap, softmax_backward's args. */
static inline float attn__softcap(const attn__canonical *canonical)
{
    return (float)canonical->problem.softcap * (float)ATTN__LOG2E;
}

/* The score of a masked key: mask_fill, or the score of an absent key. */
static inline float attn__masked_score(const attn__canonical *canonical)
{
    double fill = canonical->problem.mask_fill;
    return fill == 0.0 ? -INFINITY : (float)fill * (float)ATTN__LOG2E;
}

/* The difference score - lse of a single number, at most 0 as in simd/softmax.h: a rounded log-sum-exp may be less
 * than the row's largest score. NaN stays NaN. */
static inline double attn__log_weight(double difference)
{
    return difference > 0 ? 0 : difference;
}

/* ------------------------------------------------------------------------------------------------- bias */

/* The bias of some queries and keys: element (i, j) is base[row_at[i] + key_at[j]], or, where keys are adjacent,
 * base[row_at[i] + key_at[0] + j].  The same struct describes its gradient. */
typedef struct attn__bias {
    float *base;
    const int64_t *row_at, *key_at;
    int64_t rows, keys;
    bool adjacent;
} attn__bias;

/* Describes arrays->bias, or with `dbias` its gradient. */
attn__bias attn__bias_of(const attn__canonical *canonical, const attn_arrays *arrays, bool dbias, const int64_t *row_at,
                         int64_t rows, const int64_t *key_at, int64_t keys);
/* tile[j * width + i] = factor * element (i, j); lanes from bias->rows on may hold anything finite. */
void attn__bias_lanes(const attn__bias *bias, const attn__online_softmax_kernel *lanes, float factor, float *tile,
                      int64_t width);
/* tile[i * ld + j] = element (i, j), padded with zeros from bias->keys to `columns`. */
void attn__bias_rows(const attn__bias *bias, int64_t columns, float *tile, int64_t ld);
/* Stores or adds a tile of gradients, row after row, because rows of a broadcast bias share elements. */
void attn__bias_store(const attn__bias *dbias, const attn__softmax_backward_kernel *kernel, const float *tile,
                      int64_t ld, bool add);

/* ------------------------------------------------------------------------- running maximum and sum, log-sum-exp */

/* Before the first key: -infinity and 0, or what a sink gives, a key of value 0.  Sets those of queries
 * [first, first + count) of a batch index, and up to `padded` without sinks. */
void attn__running_begin(const attn__canonical *canonical, const attn_arrays *arrays, int64_t batch, int64_t first,
                         int64_t count, int64_t padded, float *max, float *sum);

/* The log-sum-exp of a row; -infinity without keys. */
static inline float attn__running_lse(float max, float sum)
{
    return sum == 0.0f ? -INFINITY : (float)(log((double)sum) + (double)max / ATTN__LOG2E);
}

/* The factor of an output's sum: 1 / (1 - dropout) over the weights' sum; 0 without keys. */
static inline float attn__running_factor(const attn__canonical *canonical, float sum)
{
    return sum == 0.0f ? 0.0f : (float)(1.0 / (1.0 - canonical->problem.dropout)) / sum;
}

/* Writes arrays->lse. */
void attn__running_store(const attn__canonical *canonical, const attn_arrays *arrays, int64_t batch, int64_t first,
                         int64_t count, const float *max, const float *sum);

/* ---------------------------------------------------------------------------------------------- backward */

/* A log-sum-exp in powers of two for softmax_backward. A row without keys gets +infinity: its weights become 0. */
static inline float attn__lse_in(float lse)
{
    return lse == -INFINITY ? INFINITY : (float)((double)lse * ATTN__LOG2E);
}

/* Reads arrays->lse so, and subtracts its gradient, if there is one, from delta = sum over v of dout * o; not in rows
 * without keys. */
void attn__lse_load(const attn__canonical *canonical, const attn_arrays *arrays, int64_t batch, int64_t first,
                    int64_t count, float *lse, float *delta);

#endif
