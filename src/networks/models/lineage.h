/* SPDX-License-Identifier: MIT
 *
 * lineage.h - tracks which row of the batch computed each token of a hypothesis. It is used to copy less when rows are
 * reordered: hypotheses of a sentence often differ only in their last tokens, and their common first tokens are already
 * in the cache rows of both. */
#ifndef ATTN_MODELS_LINEAGE_H
#define ATTN_MODELS_LINEAGE_H

#include "attn/attn.h"

typedef struct attn__lineage {
    /* rows: [n,room], the row that computed token t of hypothesis i; old: the values of `rows` before the last
     * reordering */
    int32_t *rows, *old;
    int64_t *shared; /* [n] */
    int64_t n, room;
} attn__lineage;

/* Begins to track n rows of at most `room` tokens. If there is no memory, sets the error and returns
 * ATTN_ERROR_MEMORY. attn__lineage_end must be called in any case. */
attn_status attn__lineage_begin(attn__lineage *lineage, attn_context *context, int64_t n, int64_t room);
void attn__lineage_end(attn__lineage *lineage, attn_context *context);
/* Records that every row computed token t of its own hypothesis. */
void attn__lineage_step(attn__lineage *lineage, int64_t t);
/* Records that row i continues the previous row rows[i], whose hypothesis has t tokens. shared[i] gets the number of
 * first tokens that both rows have in common. */
void attn__lineage_reorder(attn__lineage *lineage, const int64_t *rows, int64_t t);
/* Keeps n rows, whose hypotheses have t tokens. The old row rows[i] becomes row i. The indices `rows` must be
 * ascending. */
void attn__lineage_select(attn__lineage *lineage, const int64_t *rows, int64_t n, int64_t t);

#endif
