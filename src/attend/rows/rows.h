/* SPDX-License-Identifier: MIT
 *
 * rows.h - the state of the rows solver, which computes (query, key) pairs one by one on f32 rows of channels.  Rows
 * are read in place where they are contiguous f32, and gathered elsewhere.
 */
#ifndef ATTN_ATTEND_ROWS_H
#define ATTN_ATTEND_ROWS_H

#include "attend/task/row.h"
#include "attend/task/solver.h"
#include "kernels/channels/channels.h"

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
typedef struct attn__rows_plan {
    const attn__channels_kernel *kernel;
    attn__side side[ATTN__SIDES];
    size_t share; /* bytes of scratch for one thread */
} attn__rows_plan;

attn_status attn__rows_plan_make(attn_context *context, const attn__task *task, attn__recipe *recipe);

/* One thread's state: scratch rows, each as long as the larger of contract and value. */
typedef struct attn__rows {
    const attn__task *task;
    const attn__rows_plan *plan;
    const attn_arrays *arrays;
    attn__row row;
    const float *q, *w, *w2;               /* of the row */
    const float *k, *v;                    /* of the key */
    const float *table[ATTN_MAX_RELATIVE]; /* rows read for the key */
    float *scratch[ATTN__SIDES];
    float *w2_scratch;
    float *sum;        /* forward: of the output.  backward: dq */
    float *dk, *spare; /* backward */
} attn__rows;

size_t attn__rows_share(const attn__task *task);
void attn__rows_start(attn__rows *r, const attn__task *task, const attn__rows_plan *plan, const attn_arrays *arrays,
                      void *memory);
/* Goes to a row and reads q, w and w2. */
void attn__rows_at(attn__rows *r, int64_t batch, int64_t query);
/* The score of an attended key, as attn__pair_score computes it; a bias may make it -INFINITY. */
float attn__rows_score(attn__rows *r, const attn__spot *spot);
/* The key's value, tables added; NULL where it is zero. */
const float *attn__rows_value(attn__rows *r, const attn__spot *spot);
/* base[offset + channels] as f32 in place or in `scratch`, and the way back. */
const float *attn__side_read(const attn__side *side, const void *base, int64_t offset, float *scratch);
void attn__side_write(const attn__side *side, void *base, int64_t offset, const float *row);
/* base[offset + channels] += a * row; f32 arrays only. */
void attn__side_add(const attn__rows *r, const attn__side *side, void *base, int64_t offset, float a, const float *row);

void attn__rows_forward(const attn__task *task, const attn__rows_plan *plan, const attn_arrays *arrays,
                        void *workspace);
/* Why gradients cannot be accumulated in place, or NULL: each sum must be rounded only once. */
const char *attn__rows_refuse_adding(const attn__task *task);
size_t attn__rows_backward_size(const attn__task *task, const attn__rows_plan *plan);
void attn__rows_backward(const attn__task *task, const attn__rows_plan *plan, const attn_arrays *arrays,
                         void *workspace);

#endif
