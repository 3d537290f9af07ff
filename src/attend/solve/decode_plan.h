/* SPDX-License-Identifier: MIT
 *
 * decode_plan.h - attention of up to 16 queries over many keys, as in decoding with a KV cache: the plan and its memory.
 *
 * A work item is a part of the keys of one batch item, or of several items with adjacent rows, such as the heads of one
 * token.  These heads alternate block by block, so that memory is read in its own order; head by head took twice as
 * long, since a row is a few cache lines, kilobytes from the next.  Grouped heads are queries of one item in the
 * canonical form and share the reading.  With few items their keys are divided into parts, so that all threads have
 * work, and the parts' sums are merged by log-sum-exp.  Neither the parts nor the grouping depends on the number of
 * threads, so that the bits do not either; memory does not grow with the keys.
 */
#ifndef ATTN_ATTEND_DECODE_PLAN_H
#define ATTN_ATTEND_DECODE_PLAN_H

#include "attend/plan/solver.h"
#include "base/arena.h"
#include "kernels/softmax_backward/softmax_backward.h"
#include "kernels/decode/decode.h"

enum {
    ATTN__DECODE_QUERIES = 16,
    ATTN__DECODE_HEADS = 64,
    ATTN__DECODE_BLOCK = 64,
    ATTN__DECODE_AHEAD = 48, /* prefetch distance in rows */
    ATTN__DECODE_ITEMS = 16,
    ATTN__DECODE_PART = 256
};

typedef struct attn__decode {
    const attn__decode_kernel *kernel;
    const attn__softmax_backward_kernel *backward;
    int64_t heads;            /* batch items of one work item */
    int64_t parts, part;      /* of the keys; how many in each */
    int64_t channels, values; /* of whole vectors */
    bool stream;              /* the gradients of keys and values are too large to stay in a cache */
} attn__decode;

/* The keys that one query of one head may see, unless the mask hides them, and where its row of bias and mask lies. */
typedef struct attn__decode_range {
    int64_t from, to;
    int64_t bias, mask;
} attn__decode_range;

/* Bias and mask of a query's row within a block of keys. */
typedef struct attn__decode_view {
    int64_t *bias_at, *mask_at; /* of the block's keys: [2 * BLOCK] */
    float *bias;                /* [BLOCK], 0 behind the keys */
    uint8_t *seen;              /* [BLOCK]: 0 where the mask hides the key, 2 where it has no weight for a bias of
                                 * -infinity, else 1 */
} attn__decode_view;

/* Sums of one part: o [queries][values], m and l [queries]. */
typedef struct attn__decode_sums {
    float *o, *m, *l;
} attn__decode_sums;

void attn__decode_run(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                      void *workspace);

/* Why rows in place cannot run a problem, whatever the pass. */
const char *attn__decode_refuse(const attn__canonical *canonical);
/* Sets all fields but `backward` and `stream`. */
void attn__decode_describe(attn__decode *decode, const attn__canonical *canonical);

/* Sets the plan's text and workspace size from the bytes of a thread and of one part and head. */
void attn__decode_settle(attn__recipe *recipe, const attn__decode *decode, const attn__canonical *canonical,
                         size_t thread, size_t part);

/* Row i of a query-like operand: its channels times `factor`, zeros up to `padded`. */
typedef struct attn__decode_operand {
    const void *base;
    size_t stride;
    const attn__group *channels;
    int64_t padded;
    float factor;
} attn__decode_operand;
void attn__decode_load(const attn__decode *decode, const attn__canonical *canonical, const attn__decode_operand *x,
                       int64_t batch, float *rows);

/* The keys of [begin, end) that each query of the item may see; false if none. */
bool attn__decode_find_ranges(const attn__canonical *canonical, const int32_t *lens, int64_t batch, int64_t begin,
                              int64_t end, attn__decode_range *range);
/* The memory of a view, and the offsets of a block's keys from `first` on; nothing without bias or mask. */
void attn__decode_view_take(const attn__canonical *canonical, attn__arena *arena, attn__decode_view *view);
void attn__decode_view_start(const attn__canonical *canonical, int64_t first, const attn__decode_view *view);
/* Bias and mask of one query's keys [from, to) of the block; elsewhere nothing is seen.  False without bias or mask. */
bool attn__decode_view_read(const attn__canonical *canonical, const attn_arrays *arrays,
                            const attn__decode_range *range, int64_t from, int64_t to, const attn__decode_view *view);
/* Keys from *at on that are seen one after another, up to `to`: they are [*at, end returned); false: there are none. */
bool attn__decode_next_run(const uint8_t *seen, int64_t to, int64_t *at, int64_t *end);

/* Offsets of keys first, first + 1, ... in one operand, for a block and the rows to prefetch; at[2 * BLOCK]. */
void attn__decode_locate(const attn__canonical *canonical, size_t stride, int64_t first, int64_t *at);

/* A block of one head's keys: head `head` of the work item that starts at batch item `item`. */
typedef struct attn__decode_place {
    int64_t item, head, keys;
    const int64_t *k_at, *v_at;
    bool only_block; /* of the work item */
} attn__decode_place;
/* Its keys and values, and the rows to prefetch while they are read: those ATTN__DECODE_AHEAD rows later.  If the item has
 * one block only, the values are prefetched while the keys are read, and the keys of the next head or item while the
 * values are read. */
void attn__decode_block(attn__decode_rows *k, attn__decode_rows *v, const attn__decode *decode,
                        const attn__canonical *canonical, const attn_arrays *arrays, const attn__decode_place *place);

/* Bytes of the sums of one part and head, and of one thread's scratch memory. */
size_t attn__decode_sums_size(const attn__decode *decode, const attn__canonical *canonical);
size_t attn__decode_thread_size(const attn__decode *decode, const attn__canonical *canonical);

void attn__decode_backward_run(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                               void *workspace);
size_t attn__decode_backward_thread_size(const attn__decode *decode, const attn__canonical *canonical);
/* of one part and head */
size_t attn__decode_backward_part_size(const attn__decode *decode, const attn__canonical *canonical);

#endif
