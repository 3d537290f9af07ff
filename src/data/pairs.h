/* SPDX-License-Identifier: MIT
 *
 * pairs.h - sentence pairs as the files of this floor use them.
 */
#ifndef ATTN_DATA_PAIRS_H
#define ATTN_DATA_PAIRS_H

#include "data/sentences.h"
#include "base/context.h"
#include "data/links.h"

struct attn_pairs {
    attn_context *context;
    char *text; /* all sentences, each ended by 0; NULL in a part, which borrows them */
    attn_pair *items;
    uint64_t *hashes;   /* of the normalized sources, by which parts are made */
    attn__links *links; /* between the words of each */
    attn__link *link;   /* those of all; NULL in a part, which borrows them */
    int64_t n, capacity;
    int64_t lines; /* pairs of the file that they were read from */
};

/* An empty list with room for `capacity` pairs. */
attn_status attn__pairs_create(attn_pairs **pairs, attn_context *context, int64_t capacity);
/* Pair i of `all` behind those of `part`, which has room for it. */
void attn__pairs_copy(attn_pairs *part, const attn_pairs *all, int64_t i);
const char *attn__pairs_side(const attn_pairs *pairs, int64_t i, attn_side side);

#endif
