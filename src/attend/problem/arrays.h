/* SPDX-License-Identifier: MIT
 *
 * arrays.h - the arrays of an execution by their numbers (attn_array): names, places, types, elements.  One table, made from
 * ATTN_ARRAYS, in place of a list wherever something is done with all of them.
 */
#ifndef ATTN_ATTEND_ARRAYS_H
#define ATTN_ATTEND_ARRAYS_H

#include "attend/problem/extent.h"

#include <string.h>

typedef enum attn__written { ATTN__WRITTEN_NEVER = 0, ATTN__WRITTEN_FORWARD, ATTN__WRITTEN_BACKWARD } attn__written;

typedef struct attn__array_info {
    const char *name;      /* "q", "table[0]" */
    size_t field, strides; /* in attn_arrays and in attn_dim (tables, and what lies in a row: 0) */
    attn__operand operand; /* that lies alike; ATTN__OPERANDS: none */
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

/* Whether a problem in its direction reads or writes the array. */
bool attn__arrays_used(const attn__canonical *canonical, attn_array array);
/* Whether the array of a problem that uses it has no elements, and may be NULL. */
bool attn__arrays_is_empty(const attn__canonical *canonical, attn_array array);
attn_dtype attn__arrays_dtype(const attn_problem *problem, attn_array array);
/* Its elements; those of a bias index are known to bias_index.c only. */
attn__extent attn__arrays_extent(const attn__canonical *canonical, attn_array array);

#endif
