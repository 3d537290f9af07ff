/* SPDX-License-Identifier: MIT
 *
 * small_sequence_plan.h - the plan of attention with up to 96 queries and keys per head, and the memory of one thread.
 *
 * A head takes about a microsecond.  Its scores are one tile, which stays in the first cache.  Rows are read and
 * written in place.  In the forward pass queries are the lanes, in the backward pass keys; only these are transposed.
 * No sums pass from block to block, and offsets are computed once per head.
 */
#ifndef ATTN_ATTEND_SMALL_SEQUENCE_PLAN_H
#define ATTN_ATTEND_SMALL_SEQUENCE_PLAN_H

#include "attend/decode/decode_plan.h"
#include "attend/flash_backward/flash_backward.h"
#include "attend/canonical/solver.h"
#include "kernels/small_sequence/small_sequence.h"

/* The most queries or keys (from there on AMX is faster), and the most channels. */
enum { ATTN__SMALL_SEQUENCE_ROWS = 96, ATTN__SMALL_SEQUENCE_CHANNELS = 256 };

typedef struct attn__small_sequence {
    const attn__small_sequence_kernel *kernel;
    const attn__softmax_backward_kernel *backward;
    const attn__online_softmax_kernel *lanes;
    int64_t queries, keys, channels, values;
    int64_t width;    /* of the scores: queries or keys, rounded up to the lanes */
    int64_t together; /* heads of one work item */
    bool limited;     /* some queries may not see all keys */
    uint32_t drop_below;
    float drop_scale;
    size_t each; /* bytes of one thread's memory */
} attn__small_sequence;

typedef struct attn__small_sequence_scratch {
    float *panel;              /* [channels or values][width] */
    float *s, *ds;             /* scores: [keys][width of queries], or [queries][width of keys] */
    float *m, *l, *shrink;     /* [width of queries] */
    float *lse, *delta;        /* [queries] */
    int32_t *from, *to;        /* [queries, padded]: the keys that a query sees */
    int32_t *index;            /* [keys]: 0, 1, ... */
    uint32_t *low, *high;      /* [queries, padded]: dropout's keys in halves, */
    uint64_t *key;             /* [queries]: and as they are */
    int32_t *column;           /* [keys, padded] */
    uint8_t *alive;            /* as s */
    attn__decode_range *range; /* [queries] */
    float *clean;              /* rows of one operand with 0 in place of infinity and NaN */
} attn__small_sequence_scratch;

/* One head, and the one after it. */
typedef struct attn__small_sequence_head {
    const attn__canonical *canonical;
    const attn__small_sequence *plan;
    const attn_arrays *arrays;
    attn__small_sequence_scratch m;
    int64_t number; /* of its batch item */
    attn__flash_backward_item at, next;
} attn__small_sequence_head;

/* Why neither pass can run a problem. */
const char *attn__small_sequence_refuse(const attn__canonical *canonical);
attn_status attn__small_sequence_plan_make(attn_context *context, const attn__canonical *canonical,
                                           attn__recipe *recipe);
/* Divides `base` into the arrays and returns the bytes used; NULL: only counts them. */
size_t attn__small_sequence_divide(const attn__small_sequence *plan, char *base, attn__small_sequence_scratch *m);

/* Calls `run` for each head. */
void attn__small_sequence_each(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                               void *workspace, void (*run)(const attn__small_sequence_head *head));
/* Sets the key range of each query of the head, and dropout's keys. */
void attn__small_sequence_limits(const attn__small_sequence_head *head);
/* Rows of an operand, whose stride among queries or keys is given as in task/offsets.h. */
attn__small_sequence_rows attn__small_sequence_rows_of(const void *base, int64_t at, int64_t next,
                                                       const attn__group *group, size_t stride, int64_t channels);
/* The kernel's sum without the pairs whose `alive` lacks the bit: they may read NaN. */
void attn__small_sequence_sum_guarded(const attn__small_sequence_head *head, const attn__small_sequence_sums *t,
                                      const uint8_t *alive, uint8_t bit);

void attn__small_sequence_forward(const attn__canonical *canonical, const attn__recipe *recipe,
                                  const attn_arrays *arrays, void *workspace);
void attn__small_sequence_backward(const attn__canonical *canonical, const attn__recipe *recipe,
                                   const attn_arrays *arrays, void *workspace);

#endif
