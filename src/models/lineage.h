/* SPDX-License-Identifier: MIT
 *
 * lineage.h - tracks which row of the batch computed each token of a hypothesis. Hypotheses of a sentence differ only
 * in their last tokens. Their common first tokens are in both cache rows already and need not be copied. */
#ifndef ATTN_MODELS_LINEAGE_H
#define ATTN_MODELS_LINEAGE_H

#include "attn/attn.h"

typedef struct attn__lineage {
    /* rows: [n,room] the row that computed token t of row i; old: the rows before the last reordering */
    int32_t *rows, *old;
    int64_t *shared; /* [n] */
    int64_t n, room;
} attn__lineage;

/* Begins tracking n rows of at most `room` tokens. Without memory it sets the error and returns ATTN_ERROR_MEMORY.
 * Call attn__lineage_end afterwards, even after a failure. */
attn_status attn__lineage_begin(attn__lineage *lineage, attn_context *context, int64_t n, int64_t room);
void attn__lineage_end(attn__lineage *lineage, attn_context *context);
/* Records that every row computes its own token t. */
void attn__lineage_step(attn__lineage *lineage, int64_t t);
/* Records that row i continues the previous row rows[i], which has t tokens. shared[i] gets the number of common
 * first tokens of both rows. */
void attn__lineage_reorder(attn__lineage *lineage, const int64_t *rows, int64_t t);
/* Keeps n rows of t tokens. The old row rows[i] becomes row i, and `rows` ascends. */
void attn__lineage_select(attn__lineage *lineage, const int64_t *rows, int64_t n, int64_t t);

#endif
