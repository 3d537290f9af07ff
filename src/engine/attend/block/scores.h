/* SPDX-License-Identifier: MIT
 *
 * scores.h - processes scores between the two matrix products. Scores are f32 and include the factor log2(e), so that a
 * weight is a power of two.  The forward pass needs softcap, bias, the score of a masked key, sinks, and the running
 * maximum and sum of each query, which give the log-sum-exp. The backward pass needs the log-sum-exp and its gradient.
 * A bias tile has either keys or queries in the lanes. visible.h has the masks.
 */
#ifndef ATTN_ATTEND_SCORES_H
#define ATTN_ATTEND_SCORES_H

#include "attend/block/rows.h"
#include "base/constants.h"
#include "kernels/online_softmax/online_softmax.h"
#include "kernels/softmax_backward/softmax_backward.h"

#include <math.h>

/* Returns scale * log2(e), by which dot products are multiplied. */
static inline float attn__score_factor(const attn__canonical *canonical)
{
    return (float)(canonical->problem.scale * ATTN__LOG2E);
}

/* Returns the softcap times log2(e), for the kernels online_softmax and softmax_backward, or 0 if there is none. */
static inline float attn__softcap(const attn__canonical *canonical)
{
    return (float)canonical->problem.softcap * (float)ATTN__LOG2E;
}

static inline float attn__masked_score(const attn__canonical *canonical)
{
    double fill = canonical->problem.mask_fill;
    return fill == 0.0 ? -INFINITY : (float)fill * (float)ATTN__LOG2E;
}

/* Returns b of a sigmoid, which is added to the scores of a row of `keys` keys. */
static inline double attn__sigmoid_bias(const attn_problem *problem, int64_t keys)
{
    return problem->own_sigmoid_bias ? problem->sigmoid_bias : keys > 0 ? -log((double)keys) : 0;
}

/* Returns b times log2(e), for the kernels, or 0 if the weights are no sigmoids. */
static inline float attn__sigmoid_offset(const attn__canonical *canonical)
{
    const attn_problem *problem = &canonical->problem;
    bool squash = problem->normalization == ATTN_NORMALIZATION_SIGMOID;
    return squash ? (float)(attn__sigmoid_bias(problem, canonical->key.size) * ATTN__LOG2E) : 0.0f;
}

static inline double attn__sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Limits a difference score - lse to at most 0, as simd/softmax.h does. The difference can be positive because the
 * log-sum-exp is rounded.  NaN stays NaN. */
static inline double attn__log_weight(double difference)
{
    return difference > 0 ? 0 : difference;
}

/* ------------------------------------------------------------------------------------------------- bias */

/* The bias of some queries and keys, or its gradient.  Element (i, j) is base[row_at[i] + key_at[j]]. If keys are
 * adjacent, element (i, j) is base[row_at[i] + key_at[0] + j]. */
typedef struct attn__bias {
    float *base;
    const int64_t *row_at, *key_at;
    int64_t rows, keys;
    bool adjacent;
} attn__bias;

/* Describes arrays->at.bias, or its gradient if `dbias` is set. */
attn__bias attn__bias_of(const attn__canonical *canonical, const attn__execution *arrays, bool dbias,
                         const int64_t *row_at, int64_t rows, const int64_t *key_at, int64_t keys);
/* Writes tile[j * width + i] = factor * element (i, j). Lanes i >= bias->rows get arbitrary finite numbers. */
void attn__bias_lanes(const attn__bias *bias, const attn__online_softmax_kernel *lanes, float factor, float *tile,
                      int64_t width);
/* Writes tile[i * ld + j] = element (i, j), with zeros for columns from bias->keys to `columns`. */
void attn__bias_rows(const attn__bias *bias, int64_t columns, float *tile, int64_t ld);
/* Stores or adds a tile of gradients row by row, because the rows of a broadcast bias share elements. */
void attn__bias_store(const attn__bias *dbias, const attn__softmax_backward_kernel *kernel, const float *tile,
                      int64_t ld, bool add);

/* ------------------------------------------------------------------------- running maximum and sum, log-sum-exp */

/* Initializes the running maximum and sum of queries [first, first + count) to -infinity and 0 or, with sinks, to the
 * score and the weight of the sink, which is a key of value 0.  Entries from `count` to `padded` get -infinity and
 * 0. */
void attn__running_begin(const attn__canonical *canonical, const attn__execution *arrays, int64_t batch, int64_t first,
                         int64_t count, int64_t padded, float *max, float *sum);

/* Returns the log-sum-exp of a row, or -infinity for a row without keys. It is 0 if weights are not divided. */
static inline float attn__running_lse(const attn__canonical *canonical, float max, float sum)
{
    if (attn__is_sum(canonical) && sum != 0.0f)
        return 0.0f;
    return sum == 0.0f ? -INFINITY : (float)(log((double)sum) + (double)max / ATTN__LOG2E);
}

/* Returns 1 / (1 - dropout) / sum, by which an output is multiplied. Returns 0 for a row without keys. */
static inline float attn__running_factor(const attn__canonical *canonical, float sum)
{
    float divisor = attn__is_sum(canonical) ? 1.0f : sum;
    return sum == 0.0f ? 0.0f : (float)(1.0 / (1.0 - canonical->problem.dropout)) / divisor;
}

/* Computes the log-sum-exps of queries [first, first + count) and stores them in arrays->at.lse. */
void attn__running_store(const attn__canonical *canonical, const attn__execution *arrays, int64_t batch, int64_t first,
                         int64_t count, const float *max, const float *sum);

/* ---------------------------------------------------------------------------------------------- backward */

/* Returns lse * log2(e) for softmax_backward. A row without keys gets +infinity, so that its weights are 0. */
static inline float attn__lse_in(float lse)
{
    return lse == -INFINITY ? INFINITY : (float)((double)lse * ATTN__LOG2E);
}

/* Loads arrays->at.lse times log2(e). If lse has a gradient, subtracts that gradient from delta, which is the sum over
 * channels of dout * o. Rows without keys keep their delta. */
void attn__lse_load(const attn__canonical *canonical, const attn__execution *arrays, int64_t batch, int64_t first,
                    int64_t count, float *lse, float *delta);

#endif
