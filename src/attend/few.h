/* SPDX-License-Identifier: MIT
 *
 * few.h - one or a few queries against many keys, as in decoding with kept keys and values: what the plan settled,
 * and its memory.
 *
 * A work item is one batch item and a part of its keys; grouped heads, which are queries of one item in the canonical
 * form, share the reading.  Where there are few batch items, their keys are divided into parts so that all threads
 * have something to do, and the parts' sums are merged by their references.  The number of parts follows from the
 * problem alone, so bits do not depend on threads, and memory does not grow with the keys.
 */
#ifndef ATTN_ATTEND_FEW_H
#define ATTN_ATTEND_FEW_H

#include "attend/solver.h"
#include "kernels/few/few.h"

enum { ATTN__FEW_QUERIES = 16, ATTN__FEW_BLOCK = 64, ATTN__FEW_ITEMS = 16, ATTN__FEW_PART = 256 };

typedef struct attn__few {
    const attn__few_kernel *kernel;
    int64_t parts, part;           /* of the keys; how many in each */
    int64_t channels, values;      /* of whole vectors */
} attn__few;

/* Sums of one part: o [queries][values], m and l [queries]. */
typedef struct attn__few_sums {
    float *o, *m, *l;
} attn__few_sums;

void attn__few_run(const attn__task *task, const attn__recipe *recipe, const attn_arrays *arrays, void *workspace);

/* Bytes of the sums of one part, and of one thread's scratch memory. */
size_t attn__few_sums_size(const attn__few *few, const attn__task *task);
size_t attn__few_thread_size(const attn__few *few, const attn__task *task);

#endif
