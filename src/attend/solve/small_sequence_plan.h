/* SPDX-License-Identifier: MIT
 *
 * small_sequence_plan.h - the plan of attention with up to 96 queries and keys per head, and the memory of one thread.
 *
 * A head takes about a microsecond.  Its scores are one tile, which stays in the first cache.  Rows are read and
 * written where they are, but for some that are copied if they lie along several axes (a window of an image).  In the forward pass queries are
 * the lanes, in the backward pass keys; only these are transposed.
 *
 * Heads that share a bias follow each other, so that a thread loads it once.  The gradient of a bias is summed over at
 * most 64 parts of the heads that share it, and then over the parts in their order: threads do not change its bits.
 */
#ifndef ATTN_ATTEND_SMALL_SEQUENCE_PLAN_H
#define ATTN_ATTEND_SMALL_SEQUENCE_PLAN_H

#include "attend/problem/operand.h"
#include "attend/plan/solver.h"
#include "attend/solve/decode_plan.h"
#include "attend/solve/flash_backward.h"
#include "kernels/small_sequence/small_sequence.h"

/* The most queries or keys (from there on AMX is faster), and the most channels. */
enum { ATTN__SMALL_SEQUENCE_ROWS = 96, ATTN__SMALL_SEQUENCE_CHANNELS = 256 };

typedef struct attn__small_sequence {
    const attn__small_sequence_kernel *kernel;
    const attn__softmax_backward_kernel *backward;
    const attn__online_softmax_kernel *lanes;
    int64_t queries, keys, channels, values;
    int64_t width;                 /* of the scores: queries or keys, rounded up to the lanes */
    int order[ATTN_MAX_DIMS];      /* of the batch axes, outermost first */
    int64_t weight[ATTN_MAX_DIMS]; /* of each batch axis in the number of a batch item */
    int64_t sharing;               /* heads in a row that add to the same gradient of a bias; all if it is not wanted */
    int64_t together, parts;       /* heads of one work item, which divides `sharing` heads into parts */
    int64_t items;
    bool joins; /* parts of the gradient of a bias */
    bool has_bias, has_mask, wants_dbias;
    bool limited; /* some queries may not see all keys */
    bool copies;  /* rows lie along several axes */
    uint32_t drop_below;
    float drop_scale;
    size_t each;                                                /* bytes of one thread's memory */
    attn__small_sequence_rows of[ATTN__OPERANDS];               /* rows of an operand, but for where a head's begin */
    int64_t *query_at[ATTN__OPERANDS], *key_at[ATTN__OPERANDS]; /* from a head's first query and key to each */
    int64_t *drop_row;                                          /* [queries]: the same of dropout's rows */
    int32_t *drop_column, *index;                               /* [keys, padded]: its columns; 0, 1, ... */
} attn__small_sequence;

typedef struct attn__small_sequence_scratch {
    float *panel;                /* [channels or values][width] */
    float *s, *ds;               /* scores: [keys][width of queries], or [queries][width of keys] */
    float *m, *l, *shrink;       /* [width of queries] */
    float *lse, *delta;          /* [queries] */
    float *bias;                 /* as s: of the head now; base 2 in the forward pass */
    float *flags;                /* as s: in the forward pass 0 where the mask hides a pair; */
    uint8_t *mask;               /* as s: in the backward pass its bytes */
    float *dbias;                /* as s: the gradient's sum over the heads of the item */
    float *copy[ATTN__OPERANDS]; /* rows that are copied, one behind the other */
    int32_t *from, *to;          /* [queries, padded]: the keys that a query sees */
    uint32_t *low, *high;        /* [queries, padded]: dropout's keys in halves, */
    uint64_t *key;               /* [queries]: and as they are */
    uint8_t *alive;              /* as s */
    attn__decode_range *range;   /* [queries] */
    float *clean;                /* rows of one operand with 0 in place of infinity and NaN */
} attn__small_sequence_scratch;

/* One head, and the one after it. */
typedef struct attn__small_sequence_head {
    const attn__canonical *canonical;
    const attn__small_sequence *plan;
    const attn_arrays *arrays;
    attn__small_sequence_scratch m;
    attn__flash_backward_item now, next;
    int64_t number;               /* of the batch item, */
    int64_t index[ATTN_MAX_DIMS]; /* and of the next one along the axes in plan->order */
    bool loaded;                  /* m.bias, m.flags and m.mask are those of ... */
    int64_t bias, mask;           /* ... these offsets */
} attn__small_sequence_head;

/* Why neither pass can run a problem. */
const char *attn__small_sequence_refuse(const attn__canonical *canonical);
attn_status attn__small_sequence_plan_make(attn_context *context, const attn__canonical *canonical,
                                           attn__recipe *recipe);
/* Divides `base` into the arrays and returns the bytes used; NULL: only counts them. */
size_t attn__small_sequence_divide(const attn__small_sequence *plan, char *base, attn__small_sequence_scratch *m);

/* Calls `run` for each head. */
void attn__small_sequence_each(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                               void *workspace, void (*run)(attn__small_sequence_head *head));
/* Sets the key range of each query of the head, and dropout's keys. */
void attn__small_sequence_limits(const attn__small_sequence_head *head);
/* The head's rows of an operand where they are. */
attn__small_sequence_rows attn__small_sequence_rows_of(const attn__small_sequence_head *head, attn__operand op);
/* Copies rows, for an x of the kernel's score and sum where plan->copies. */
void attn__small_sequence_copy(const attn__small_sequence_head *head, attn__operand op, attn__small_sequence_rows *x);
/* The kernel's sum without the pairs whose `alive` lacks the bit: they may read NaN. */
void attn__small_sequence_sum_guarded(const attn__small_sequence_head *head, const attn__small_sequence_sums *t,
                                      const uint8_t *alive, uint8_t bit);

/* The head's bias and mask to m.bias and m.flags or m.mask, unless they are there. */
void attn__small_sequence_load_pairs(attn__small_sequence_head *head);
/* The gradient of the bias, whose sum over an item is in m.dbias: of a part, and of all parts. */
void attn__small_sequence_store_dbias(const attn__small_sequence_head *head, float *parts, int64_t item);
void attn__small_sequence_join_dbias(const attn__small_sequence_head *head, const float *parts, int64_t first);

void attn__small_sequence_forward(const attn__canonical *canonical, const attn__recipe *recipe,
                                  const attn_arrays *arrays, void *workspace);
void attn__small_sequence_backward(const attn__canonical *canonical, const attn__recipe *recipe,
                                   const attn_arrays *arrays, void *workspace);

#endif
