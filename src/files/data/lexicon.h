/* SPDX-License-Identifier: MIT
 *
 * lexicon.h - the internal form of lexicons, which hold the probabilities that a token of one language translates to a
 * token of another.
 */
#ifndef ATTN_DATA_LEXICON_H
#define ATTN_DATA_LEXICON_H

#include "data/sentences.h"
#include "base/context.h"

typedef struct attn__lexicon_entry {
    int32_t source, target;
    float probability;
} attn__lexicon_entry;

/* Entries are sorted by source token, and then by falling probability. Source token s has entries begin[s] to
 * begin[s+1] - 1. */
struct attn_lexicon {
    attn_context *context;
    const attn_vocab *source, *target;
    attn__lexicon_entry *entries;
    int64_t n;
    int64_t *begin;
};

/* Returns NULL and records an error if there is no memory. */
attn_lexicon *attn__lexicon_create(attn_context *context, const attn_vocab *source, const attn_vocab *target);
attn_status attn__lexicon_add(attn_lexicon *lexicon, attn__lexicon_entry entry);
/* Sorts the entries. It must be called after the last entry was added. */
void attn__lexicon_sort(attn_lexicon *lexicon);
/* Sets marks[t] to 1 for the `best` likeliest translations t of a source token. */
void attn__lexicon_mark(const attn_lexicon *lexicon, int32_t source, int64_t best, unsigned char *marks);

#endif
