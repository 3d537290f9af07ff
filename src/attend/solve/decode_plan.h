/* SPDX-License-Identifier: MIT
 *
 * decode_plan.h - the keys that a query may see by bands and lengths.
 */
#ifndef ATTN_ATTEND_DECODE_PLAN_H
#define ATTN_ATTEND_DECODE_PLAN_H

#include "attend/plan/solver.h"
#include "base/arena.h"
#include "kernels/softmax_backward/softmax_backward.h"

/* The keys that one query of one head may see, unless the mask hides them, and where its row of bias and mask lies. */
typedef struct attn__decode_range {
    int64_t from, to;
    int64_t bias, mask;
} attn__decode_range;

/* The keys of [begin, end) that each query of the item may see; false if none. */
bool attn__decode_find_ranges(const attn__canonical *canonical, const int32_t *lens, int64_t batch, int64_t begin,
                              int64_t end, attn__decode_range *range);

#endif
