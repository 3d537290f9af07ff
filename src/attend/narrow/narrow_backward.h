/* SPDX-License-Identifier: MIT
 *
 * narrow_backward.h - the plan of the gradients of heads of at most 16 channels, and the memory of one thread.
 *
 * A work item is a group of heads that are adjacent in memory, with all their queries and keys.  Rows are copied once
 * for all heads of the group, as in narrow.h.  Each head's gradients are complete before the next head begins, so that
 * no two items write the same element.  Rows too long for a thread's memory go to flash_backward.
 */
#ifndef ATTN_ATTEND_NARROW_BACKWARD_H
#define ATTN_ATTEND_NARROW_BACKWARD_H

#include "attend/task/solver.h"
#include "kernels/lanes/lanes.h"
#include "kernels/narrow/narrow.h"

enum { ATTN__NARROW_ROWS = 1024 }; /* the most queries, and the most keys */

typedef struct attn__narrow_back {
    const attn__narrow_kernel *kernel;
    const attn__lanes_kernel *lanes;
    int size;              /* of the kernel's three */
    int64_t channels;      /* padded */
    int64_t heads;         /* of one group */
    int64_t queries, keys; /* padded */
    int64_t stage_ld;
} attn__narrow_back;

typedef struct attn__narrow_back_scratch {
    float *stage, *o_stage;   /* [rows][heads * channels] */
    float *q, *dout;          /* [heads][queries][channels] */
    float *k;                 /* [heads][keys][channels] */
    float *kt, *vt, *dk, *dv; /* [heads][channels][keys] */
    float *dq;                /* [heads][channels][queries] */
    float *lse, *delta;       /* [heads][queries] */
    float *p, *ds, *turned, *factor;
    int64_t *at, *stage_at;
} attn__narrow_back_scratch;

size_t attn__narrow_back_divide(const attn__narrow_back *narrow, char *base, attn__narrow_back_scratch *scratch);
void attn__narrow_back_run(const attn__task *task, const attn__recipe *recipe, const attn_arrays *arrays,
                           void *workspace);

#endif
