/* SPDX-License-Identifier: MIT
 *
 * arrays.h - the arrays of an execution by their numbers (attn_array): names, places, types, and which elements a
 * problem touches.  One table, made from ATTN_ARRAYS, in place of a list wherever something is done with all of them.
 */
#ifndef ATTN_ATTEND_ARRAYS_H
#define ATTN_ATTEND_ARRAYS_H

#include "attend/problem/operand.h"
#include "attend/problem/canonical.h"

#include <string.h>

/* The elements of one array: its axes of nonzero stride, and the offsets that they span. */
typedef struct attn__extent {
    int n;
    int64_t length[ATTN_MAX_DIMS + 1], stride[ATTN_MAX_DIMS + 1];
    int64_t low, high;
} attn__extent;

/* high - low + 1, or 0 if some axis has no elements. */
static inline size_t attn__extent_size(const attn__extent *e)
{
    for (int i = 0; i < e->n; i++)
        if (e->length[i] == 0)
            return 0;
    return (size_t)(e->high - e->low) + 1;
}

/* Steps to the next index over the first `axes` axes of an extent that has elements, the last one fastest, and to its
 * offset; both begin at 0.  False: it was the last one. */
static inline bool attn__extent_next(const attn__extent *e, int axes, int64_t *index, int64_t *offset)
{
    for (int i = axes - 1; i >= 0; i--) {
        *offset += e->stride[i];
        if (++index[i] < e->length[i])
            return true;
        *offset -= e->stride[i] * e->length[i];
        index[i] = 0;
    }
    return false;
}

/* `fixed`: BATCH axes whose index stays; where that of packed sequences does, one sequence's.  NULL: none. */
attn__extent attn__operand_extent(const attn__canonical *canonical, attn__operand op, const bool *fixed);

typedef enum attn__written { ATTN__WRITTEN_NEVER = 0, ATTN__WRITTEN_FORWARD, ATTN__WRITTEN_BACKWARD } attn__written;

typedef struct attn__array_info {
    const char *name;      /* for messages: "q", "table[0]" */
    size_t field, strides; /* offsets in attn_arrays and in attn_dim (0 for tables and for arrays of one row) */
    attn__operand operand; /* the operand with the same strides; ATTN__OPERANDS: none */
    attn__written written;
} attn__array_info;

extern const attn__array_info attn__arrays_table[ATTN_ARRAY_COUNT];

static inline void *attn__arrays_get(const attn_arrays *arrays, attn_array array)
{
    void *data;
    memcpy(&data, (const char *)arrays + attn__arrays_table[array].field, sizeof data);
    return data;
}

static inline void attn__arrays_set(attn_arrays *arrays, attn_array array, const void *data)
{
    memcpy((char *)arrays + attn__arrays_table[array].field, &data, sizeof data);
}

typedef struct attn__array_use {
    attn_dtype dtype;
    attn__extent extent; /* range of elements; empty for a bias index, which only bias_index.c reads */
    bool optional;       /* the pointer may be NULL, since no element is read */
} attn__array_use;

/* False if the problem, in its direction, neither reads nor writes the array. */
bool attn__arrays_find(const attn__canonical *canonical, attn_array array, attn__array_use *use);

#endif
