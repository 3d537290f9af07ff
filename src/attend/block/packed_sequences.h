/* SPDX-License-Identifier: MIT
 *
 * packed_sequences.h - packed sequences: one sequence of a problem as a problem of its own, so that a solver runs it as it runs any
 * other.  Only lengths and places of arrays change; what a plan made of the longest lengths still fits.
 */
#ifndef ATTN_ATTEND_PACKED_SEQUENCES_H
#define ATTN_ATTEND_PACKED_SEQUENCES_H

#include "attend/problem/canonical.h"

typedef struct attn__sequence {
    attn__canonical canonical; /* its lengths in place of the longest; its bands, if they go by its ends */
    attn_arrays arrays;        /* that start at its tokens */
} attn__sequence;

static inline bool attn__is_packed(const attn__canonical *canonical)
{
    return canonical->extras & ATTN__PACKED;
}

/* The sequence that a linear index over the BATCH axes belongs to. */
int64_t attn__packed_sequence(const attn__canonical *canonical, int64_t batch);
/* How many rows (indices over all QUERY axes) it has. */
int64_t attn__packed_rows(const attn__canonical *canonical, const attn_arrays *arrays, int64_t sequence);
void attn__sequence_at(attn__sequence *one, const attn__canonical *canonical, const attn_arrays *arrays,
                       int64_t sequence);

/* NULL if the offsets are in order and no sequence is longer than its dim; else the offsets' name and, in *at, which of
 * them is wrong. */
const char *attn__packed_fault(const attn__canonical *canonical, const attn_arrays *arrays, int64_t *at);

#endif
