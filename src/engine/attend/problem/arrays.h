/* SPDX-License-Identifier: MIT
 *
 * arrays.h - a table of the arrays of an execution, with the name, field, type and used elements of each.  It is
 * indexed by attn_array and made from ATTN_ARRAYS. Code that handles all arrays loops over it.
 */
#ifndef ATTN_ATTEND_ARRAYS_H
#define ATTN_ATTEND_ARRAYS_H

#include "attend/problem/operand.h"
#include "attend/problem/canonical.h"

#include <string.h>

/* The elements of one array: lengths and strides of its axes with nonzero stride, and its lowest and highest offset. */
typedef struct attn__extent {
    int n;
    int64_t length[ATTN_MAX_DIMS + 1], stride[ATTN_MAX_DIMS + 1];
    int64_t low, high;
} attn__extent;

static inline size_t attn__extent_size(const attn__extent *e)
{
    for (int i = 0; i < e->n; i++)
        if (e->length[i] == 0)
            return 0;
    return (size_t)(e->high - e->low) + 1;
}

/* Advances `index` over the first `axes` axes of an extent, and updates `offset`. The last axis varies fastest. `index`
 * and `offset` start at 0. The extent must have elements.  Returns false after the last index. */
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

/* Returns the elements of an operand. `fixed`, which may be NULL, marks BATCH axes whose index is constant. If it marks
 * the axis of packed sequences, the extent covers one sequence. */
attn__extent attn__operand_extent(const attn__canonical *canonical, attn__operand op, const bool *fixed);

typedef enum attn__written { ATTN__WRITTEN_NEVER = 0, ATTN__WRITTEN_FORWARD, ATTN__WRITTEN_BACKWARD } attn__written;

typedef struct attn__array_info {
    const char *name;      /* the name in error messages: "q", "table[0]" */
    size_t field, strides; /* field: offset in attn_arrays; strides: offset in attn_dim, 0 for tables, one-row arrays */
    attn__operand operand; /* operand with the same strides, or ATTN__OPERANDS if there is none */
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
    attn__extent extent; /* used elements; empty for a bias index, because only bias_index.c reads it */
    bool optional;       /* the pointer may be NULL, because no element is read */
} attn__array_use;

/* Reports whether the problem, in its direction, reads or writes the array. If so, sets *use. */
bool attn__arrays_find(const attn__canonical *canonical, attn_array array, attn__array_use *use);

#endif
