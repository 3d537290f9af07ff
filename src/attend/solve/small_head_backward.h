/* SPDX-License-Identifier: MIT
 *
 * small_head_backward.h - the plan of the gradients of heads of at most 16 channels, and the memory of one thread.
 *
 * A work item is a group of heads that are adjacent in memory, with all their queries and keys.  Rows are copied
 * once for all heads of the group, as in small_head.h.  Each head's gradients are complete before the next head
 * begins, so that no two items write the same element.  Rows too long for a thread's memory go to flash_backward. */
#ifndef ATTN_ATTEND_SMALL_HEAD_BACKWARD_H
#define ATTN_ATTEND_SMALL_HEAD_BACKWARD_H

#include "attend/plan/solver.h"
#include "kernels/online_softmax/online_softmax.h"
#include "kernels/small_head/small_head.h"

enum { ATTN__SMALL_HEAD_ROWS = 1024 }; /* the most queries, and the most keys */

typedef struct attn__small_head_backward_plan {
    const attn__small_head_kernel *kernel;
    const attn__online_softmax_kernel *lanes;
    int size;              /* of the kernel's three */
    int64_t channels;      /* padded */
    int64_t heads;         /* of one group */
    int64_t queries, keys; /* padded */
    int64_t stage_ld;
} attn__small_head_backward_plan;

typedef struct attn__small_head_backward_scratch {
    float *stage, *o_stage;   /* [rows][heads * channels] */
    float *q, *dout;          /* [heads][queries][channels] */
    float *k;                 /* [heads][keys][channels] */
    float *kt, *vt, *dk, *dv; /* [heads][channels][keys] */
    float *dq;                /* [heads][channels][queries] */
    float *lse, *delta;       /* [heads][queries] */
    float *p, *ds, *transposed, *factor;
    int64_t *at, *stage_at;
} attn__small_head_backward_scratch;

size_t attn__small_head_backward_divide(const attn__small_head_backward_plan *small_head, char *base,
                                        attn__small_head_backward_scratch *scratch);
void attn__small_head_backward_run(const attn__canonical *canonical, const attn__recipe *recipe,
                                   const attn_arrays *arrays, void *workspace);

#endif
