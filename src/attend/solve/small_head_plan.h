/* SPDX-License-Identifier: MIT
 *
 * small_head_plan.h - the plan of attention with heads of at most 16 channels, and the memory of one thread.
 *
 * Several heads share a cache line.  Along a strided axis, lines are pages apart and compete for one set of the second
 * cache, so that each must be read only once.  A work item therefore is a block of queries for a group of heads that
 * are adjacent in memory: whole rows of the group are copied to a staging buffer, each head is packed from there, and
 * outputs return the same way.
 *
 * The products of one item prefetch the rows of the next.  Where rows are a multiple of a page apart, the second cache
 * holds only about thirty of them, so that they are copied to staging buffers at once.
 */
#ifndef ATTN_ATTEND_SMALL_HEAD_PLAN_H
#define ATTN_ATTEND_SMALL_HEAD_PLAN_H

#include "attend/block/prefetch.h"
#include "attend/plan/solver.h"
#include "kernels/online_softmax/online_softmax.h"
#include "kernels/small_head/small_head.h"

typedef struct attn__small_head {
    const attn__small_head_kernel *kernel;
    const attn__online_softmax_kernel *lanes;
    int size;         /* of the kernel's three */
    int64_t channels; /* padded, of q and k as of v and o */
    int64_t width;    /* queries of one call */
    int64_t heads;    /* of one group: adjacent along the last batch axis */
    int64_t query_block, query_blocks, key_block;
    int64_t stage_ld;
    bool keeps; /* prefetched rows are copied */
    /* Offsets of a row's elements; NULL where they are adjacent. */
    const int64_t *q_column, *k_column, *v_column, *o_column;
    int64_t tables[];
} attn__small_head;

enum { ATTN__SMALL_HEAD_Q, ATTN__SMALL_HEAD_K, ATTN__SMALL_HEAD_V, ATTN__SMALL_HEAD_KEPT };

/* Which rows were copied early: the item's number, -1 if none, and the first key. */
typedef struct attn__small_head_kept {
    int64_t index, at;
} attn__small_head_kept;

typedef struct attn__small_head_scratch {
    attn__small_head_kept *kept;             /* of queries only where `at` is 0 */
    float *kept_rows[ATTN__SMALL_HEAD_KEPT]; /* as stage */
    float *stage;                            /* [rows][heads * channels] */
    float *q, *o;                            /* [heads][channels][query_block] */
    float *m, *l;                            /* [heads][query_block] */
    float *k, *v;                            /* [heads][key_block][channels] */
    float *reach;                            /* [heads][channels] */
    float *p, *factor;
    int64_t *at, *stage_at;
} attn__small_head_scratch;

/* Divides `base` into the arrays and returns the bytes used; NULL: only counts them. */
size_t attn__small_head_divide(const attn__small_head *small_head, char *base, attn__small_head_scratch *scratch);

/* Adds rows [from, from + rows) of one operand, as far as they exist, `bytes` each, to the prefetch list.  False if
 * there is none. */
bool attn__small_head_prefetch(const attn__canonical *canonical, attn__prefetch *prefetch, const void *base,
                               int64_t batch, const attn__group *group, int64_t from, int64_t rows, size_t stride,
                               int64_t bytes);

void attn__small_head_forward(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                              void *workspace);

#endif
