/* SPDX-License-Identifier: MIT
 *
 * pairwise_rows.h - the state of the pairwise solver, which computes (query, key) pairs one by one on f32 rows of channels.
 * Rows are read in place where they are contiguous f32, and gathered elsewhere.
 */
#ifndef ATTN_ATTEND_PAIRWISE_ROWS_H
#define ATTN_ATTEND_PAIRWISE_ROWS_H

#include "attend/block/row.h"
#include "attend/plan/solver.h"
#include "kernels/pairwise/pairwise.h"

/* The layout of one operand's channels: contiguous f32, or at these offsets. */
#define ATTN__NOWHERE INT64_MIN /* offset of a channel that a table does not serve */
typedef struct attn__side {
    bool direct;
    attn_dtype dtype;
    int64_t n;
    int64_t *offset; /* of the recipe's memory; NULL where direct */
} attn__side;

enum {
    ATTN__SIDE_Q,
    ATTN__SIDE_K,
    ATTN__SIDE_V,
    ATTN__SIDE_O,
    ATTN__SIDE_W,
    ATTN__SIDE_DQ,
    ATTN__SIDE_DK,
    ATTN__SIDE_DV,
    ATTN__SIDE_DOUT,
    ATTN__SIDE_TABLE,
    ATTN__SIDES = ATTN__SIDE_TABLE + ATTN_MAX_RELATIVE
};

/* The recipe's data. */
typedef struct attn__pairwise_plan {
    const attn__pairwise_kernel *kernel;
    attn__side side[ATTN__SIDES];
    size_t share; /* bytes of scratch for one thread */
} attn__pairwise_plan;

attn_status attn__pairwise_plan_make(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe);

/* One thread's state: scratch rows, each as long as the larger of contract and value. */
typedef struct attn__pairwise {
    const attn__canonical *canonical;
    const attn__pairwise_plan *plan;
    const attn_arrays *arrays;
    attn__row row;
    const float *q, *w, *w2;               /* of the row */
    const float *k, *v;                    /* of the key */
    const float *table[ATTN_MAX_RELATIVE]; /* rows read for the key */
    float *scratch[ATTN__SIDES];
    float *w2_scratch;
    float *tanh;          /* of q + k, for additive scores */
    float gate, of_query; /* of concat scores, which are max(gate, 0): w q + w2 k, and its first term */
    float *sum;           /* forward: of the output.  backward: dq */
    float *dk, *dw;       /* backward; dw: of additive scores the gradient of w, of concat scores that of w2 */
} attn__pairwise;

size_t attn__pairwise_share(const attn__canonical *canonical);
void attn__pairwise_start(attn__pairwise *r, const attn__canonical *canonical, const attn__pairwise_plan *plan,
                          const attn_arrays *arrays, void *memory);
/* Goes to a row and reads q, w and w2. */
void attn__pairwise_at(attn__pairwise *r, int64_t batch, int64_t query);
/* The score of an attended key, as attn__pair_score computes it; a bias may make it -INFINITY. */
float attn__pairwise_score(attn__pairwise *r, const attn__spot *spot);
/* The key's value, tables added; NULL where it is zero. */
const float *attn__pairwise_value(attn__pairwise *r, const attn__spot *spot);
/* base[offset + channels] as f32 in place or in `scratch`, and the way back. */
const float *attn__side_read(const attn__side *side, const void *base, int64_t offset, float *scratch);
void attn__side_write(const attn__side *side, void *base, int64_t offset, const float *row);
/* base[offset + channels] += a * row; f32 arrays only. */
void attn__side_add(const attn__pairwise *r, const attn__side *side, void *base, int64_t offset, float a,
                    const float *row);

void attn__pairwise_forward(const attn__canonical *canonical, const attn__pairwise_plan *plan,
                            const attn_arrays *arrays, void *workspace);
/* Why gradients cannot be accumulated in place, or NULL: each sum must be rounded only once. */
const char *attn__pairwise_refuse_adding(const attn__canonical *canonical);
size_t attn__pairwise_backward_size(const attn__canonical *canonical, const attn__pairwise_plan *plan);
void attn__pairwise_backward(const attn__canonical *canonical, const attn__pairwise_plan *plan,
                             const attn_arrays *arrays, void *workspace);

#endif
