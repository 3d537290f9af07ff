/* SPDX-License-Identifier: MIT
 *
 * pairs.h - the internal form of sentence pairs. */
#ifndef ATTN_DATA_PAIRS_H
#define ATTN_DATA_PAIRS_H

#include "data/sentences.h"
#include "base/context.h"
#include "data/links.h"

struct attn_pairs {
    attn_context *context;
    char *text; /* all sentences, each terminated by 0; NULL in a part, which borrows the sentences of another list */
    attn_pair *items;
    /* hashes of the normalized source sentences; they decide to which part of a split a pair belongs */
    uint64_t *hashes;
    attn__links *links; /* word alignments of each pair */
    attn__link *link;   /* the links of all pairs; NULL in a part, which borrows the links of another list */
    int64_t n, capacity;
    int64_t lines; /* number of pairs in the original file */
};

attn_status attn__pairs_create(attn_pairs **pairs, attn_context *context, int64_t capacity);
/* Appends pair i of `all` to `part`, which has room for it. */
void attn__pairs_copy(attn_pairs *part, const attn_pairs *all, int64_t i);
const char *attn__pairs_side(const attn_pairs *pairs, int64_t i, attn_side side);

#endif
