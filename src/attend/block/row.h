/* SPDX-License-Identifier: MIT
 *
 * row.h - the plain walk over a problem: one row (batch and query indices), then its keys one by one.  It handles
 * windows, bands, masks, lengths and the rows of relative tables, for code that need not be fast.
 */
#ifndef ATTN_ATTEND_ROW_H
#define ATTN_ATTEND_ROW_H

#include "attend/block/dropout.h"
#include "attend/problem/operand.h"
#include "attend/problem/canonical.h"

typedef struct attn__row {
    const attn__canonical *canonical;
    const attn_arrays *arrays;
    int64_t index[ATTN_MAX_DIMS];     /* the query's index along each query axis */
    int64_t offset[ATTN__OPERANDS];   /* offset of the row in each operand */
    int64_t table[ATTN_MAX_RELATIVE]; /* offset of the batch index in each table */
    int64_t base[ATTN_MAX_WINDOWS];   /* position of tap 0 of each window */
    bool absent;                      /* the query is past the end of its packed sequence; then no offset is valid */
    int64_t keys;                     /* number of keys of the packed sequence */
    int64_t shift;                    /* packed sequences: what bands add to the query's index */
    int64_t len;                      /* keys of lens_dim from here on are masked */
    uint64_t key;                     /* dropout's key of the row */
} attn__row;

typedef enum attn__spot_kind {
    ATTN__SPOT_OUT,  /* takes no part: masked, or outside a masking border */
    ATTN__SPOT_FILL, /* masked, and scores problem.mask_fill */
    ATTN__SPOT_KEY   /* scores by its own */
} attn__spot_kind;

typedef struct attn__spot {
    attn__spot_kind kind;
    int64_t key;                      /* linear index of the key */
    bool outside;                     /* the key is in a zero border: k and v are 0 */
    int64_t offset[ATTN__OPERANDS];   /* offset in each operand that has KEY strides; undefined if kind is OUT */
    int64_t table[ATTN_MAX_RELATIVE]; /* offset of the row in each table */
    uint32_t column;                  /* dropout's column of the key */
} attn__spot;

/* The row of linear indices `batch` and `query`. */
void attn__row_at(attn__row *row, const attn__canonical *canonical, const attn_arrays *arrays, int64_t batch,
                  int64_t query);
/* The key of linear index `key`, as this row attends it. */
void attn__spot_at(attn__spot *spot, const attn__row *row, int64_t key);
/* The dropout factor of a weight: 0 if it is dropped, else 1/(1-p). */
static inline double attn__row_keep(const attn__row *row, const attn__spot *spot)
{
    const attn__canonical *canonical = row->canonical;
    if (!canonical->has_dropout)
        return 1;
    bool dropped = attn__dropout_bits(row->key, spot->column) < attn__dropout_threshold(canonical->problem.dropout);
    return dropped ? 0 : attn__dropout_factor(canonical);
}

#endif
