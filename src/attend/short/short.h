/* SPDX-License-Identifier: MIT
 *
 * short.h - the plan of attention with up to 96 queries and keys per head, and the memory of one thread.
 *
 * A head takes about a microsecond.  Its scores are one tile, which stays in the first cache.  Rows are read and
 * written in place.  In the forward pass queries are the lanes, in the backward pass keys; only these are transposed.
 * No sums pass from block to block, and offsets are computed once per head.
 */
#ifndef ATTN_ATTEND_SHORT_H
#define ATTN_ATTEND_SHORT_H

#include "attend/few/few.h"
#include "attend/flash_backward/flash_backward.h"
#include "attend/task/solver.h"
#include "kernels/short/short.h"

/* The most queries or keys (from there on AMX is faster), and the most channels. */
enum { ATTN__SHORT_ROWS = 96, ATTN__SHORT_CHANNELS = 256 };

typedef struct attn__short {
    const attn__short_kernel *kernel;
    const attn__backward_kernel *backward;
    const attn__lanes_kernel *lanes;
    int64_t queries, keys, channels, values;
    int64_t width;    /* of the scores: queries or keys, rounded up to the lanes */
    int64_t together; /* heads of one work item */
    bool limited;     /* some queries may not see all keys */
    uint32_t drop_below;
    float drop_scale;
    size_t each; /* bytes of one thread's memory */
} attn__short;

typedef struct attn__short_scratch {
    float *panel;           /* [channels or values][width] */
    float *s, *ds;          /* scores: [keys][width of queries], or [queries][width of keys] */
    float *m, *l, *shrink;  /* [width of queries] */
    float *lse, *delta;     /* [queries] */
    int32_t *from, *to;     /* [queries, padded]: the keys that a query sees */
    int32_t *index;         /* [keys]: 0, 1, ... */
    uint32_t *low, *high;   /* [queries, padded]: dropout's keys in halves, */
    uint64_t *key;          /* [queries]: and as they are */
    int32_t *column;        /* [keys, padded] */
    uint8_t *alive;         /* as s */
    attn__few_range *range; /* [queries] */
    float *clean;           /* rows of one operand with 0 in place of infinity and NaN */
} attn__short_scratch;

/* One head, and the one after it. */
typedef struct attn__short_head {
    const attn__task *task;
    const attn__short *plan;
    const attn_arrays *arrays;
    attn__short_scratch m;
    int64_t number; /* of its batch item */
    attn__back_item at, next;
} attn__short_head;

/* Why neither pass can run a task. */
const char *attn__short_refuse(const attn__task *task);
attn_status attn__short_plan_make(attn_context *context, const attn__task *task, attn__recipe *recipe);
/* Divides `base` into the arrays and returns the bytes used; NULL: only counts them. */
size_t attn__short_divide(const attn__short *plan, char *base, attn__short_scratch *m);

/* Calls `run` for each head. */
void attn__short_each(const attn__task *task, const attn__recipe *recipe, const attn_arrays *arrays, void *workspace,
                      void (*run)(const attn__short_head *head));
/* Sets the key range of each query of the head, and dropout's keys. */
void attn__short_limits(const attn__short_head *head);
/* Rows of an operand, whose stride among queries or keys is given as in task/offsets.h. */
attn__short_rows attn__short_rows_of(const void *base, int64_t at, int64_t next, const attn__group *group,
                                     size_t stride, int64_t channels);
/* The kernel's sum without the pairs whose `alive` lacks the bit: they may read NaN. */
void attn__short_sum_carefully(const attn__short_head *head, const attn__short_sums *t, const uint8_t *alive,
                               uint8_t bit);

void attn__short_forward(const attn__task *task, const attn__recipe *recipe, const attn_arrays *arrays,
                         void *workspace);
void attn__short_backward(const attn__task *task, const attn__recipe *recipe, const attn_arrays *arrays,
                          void *workspace);

#endif
