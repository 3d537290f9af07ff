/* SPDX-License-Identifier: MIT
 *
 * lineage.h - which row of the batch computed each token of a hypothesis.  Hypotheses of a sentence branch off each other
 * a few tokens back: their common part is in both rows of a cache already and need not be copied. */
#ifndef ATTN_MODELS_LINEAGE_H
#define ATTN_MODELS_LINEAGE_H

#include "attn/attn.h"

typedef struct attn__lineage {
    int32_t *rows, *old; /* [n,room]: where token t of row i was computed; and before the last reordering */
    int64_t *shared;     /* [n] */
    int64_t n, room;
} attn__lineage;

/* For n rows of at most `room` tokens.  ATTN_ERROR_MEMORY (noted): it must be ended then too. */
attn_status attn__lineage_begin(attn__lineage *lineage, attn_context *context, int64_t n, int64_t room);
void attn__lineage_end(attn__lineage *lineage, attn_context *context);
/* Each row computes its token number t. */
void attn__lineage_step(attn__lineage *lineage, int64_t t);
/* Row i goes on from what was row rows[i], t tokens long.  shared[i]: the first tokens that both had in common. */
void attn__lineage_reorder(attn__lineage *lineage, const int64_t *rows, int64_t t);
/* n of the rows stay, rows[i] as row i, t tokens long; they ascend. */
void attn__lineage_select(attn__lineage *lineage, const int64_t *rows, int64_t n, int64_t t);

#endif
