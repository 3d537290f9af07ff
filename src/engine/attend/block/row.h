/* SPDX-License-Identifier: MIT
 *
 * row.h - visits the rows (batch and query indices) of a problem and their keys one by one.  It is for code that need
 * not be fast, and handles windows, bands, masks, lengths and relative tables.
 */
#ifndef ATTN_ATTEND_ROW_H
#define ATTN_ATTEND_ROW_H

#include "attend/block/dropout.h"
#include "attend/problem/operand.h"
#include "attend/problem/canonical.h"

typedef struct attn__row {
    const attn__canonical *canonical;
    const attn__execution *arrays;
    int64_t index[ATTN_MAX_DIMS]; /* the query's index along each query axis */
    int64_t offset[ATTN__OPERANDS];
    int64_t table[ATTN_MAX_RELATIVE]; /* offset of the batch index in each table */
    int64_t base[ATTN_MAX_WINDOWS];   /* position of tap 0 in each window */
    bool absent;                      /* the query is past the end of its packed sequence; the offsets are invalid */
    int64_t keys;                     /* number of keys of the packed sequence */
    int64_t shift;                    /* number that bands add to the query's index; 0 if sequences are not packed */
    int64_t len;                      /* length along lens_dim; a key whose index is `len` or more is masked */
    uint64_t key;                     /* dropout hash of the row */
} attn__row;

typedef enum attn__spot_kind {
    ATTN__SPOT_OUT,  /* the key has no score, because it is masked or outside of a masking border */
    ATTN__SPOT_FILL, /* the key is masked and has the score problem.mask_fill */
    ATTN__SPOT_KEY   /* the key has a computed score */
} attn__spot_kind;

typedef struct attn__spot {
    attn__spot_kind kind;
    int64_t key;
    bool outside;                     /* the key is in a zero border, where k and v are 0 */
    int64_t offset[ATTN__OPERANDS];   /* offset in each operand with KEY strides; undefined for ATTN__SPOT_OUT */
    int64_t table[ATTN_MAX_RELATIVE]; /* offset of the row in each table */
    uint32_t column;                  /* dropout column number of the key */
} attn__spot;

void attn__row_at(attn__row *row, const attn__canonical *canonical, const attn__execution *arrays, int64_t batch,
                  int64_t query);
void attn__spot_at(attn__spot *spot, const attn__row *row, int64_t key);
/* Returns the dropout factor of a weight: 0 if the weight is dropped, otherwise 1 / (1 - p). */
static inline double attn__row_keep(const attn__row *row, const attn__spot *spot)
{
    const attn__canonical *canonical = row->canonical;
    if (!canonical->has_dropout)
        return 1;
    bool dropped = attn__dropout_bits(row->key, spot->column) < attn__dropout_threshold(canonical->problem.dropout);
    return dropped ? 0 : attn__dropout_factor(canonical);
}

#endif
