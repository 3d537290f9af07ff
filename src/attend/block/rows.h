/* SPDX-License-Identifier: MIT
 *
 * rows.h - from an index over a group of dims, the last one fastest, to element offsets.
 */
#ifndef ATTN_ATTEND_ROWS_H
#define ATTN_ATTEND_ROWS_H

#include "attend/problem/canonical.h"

/* Which stride of attn__axis: ATTN__STRIDE(dim.q), ATTN__STRIDE(drop), ... */
#define ATTN__STRIDE(field) offsetof(attn__axis, field)

/* out[i] = offset of index first + i, for count of them. */
void attn__offsets_fill(const attn__group *group, size_t stride, int64_t first, int64_t count, int64_t *out);
int64_t attn__offsets_one(const attn__group *group, size_t stride, int64_t index);
/* The index along one axis of the group, of the group's index. */
int64_t attn__offsets_index(const attn__group *group, int axis, int64_t index);
/* True if the group is one run of adjacent elements for this stride. */
bool attn__offsets_adjacent(const attn__group *group, size_t stride);
/* True if index i has the offset i * step. */
bool attn__offsets_even(const attn__group *group, size_t stride, int64_t step);

#endif
