/* SPDX-License-Identifier: MIT
 *
 * links.h - word alignments of sentence pairs: which word of the source each word of the target comes from.
 */
#ifndef ATTN_DATA_LINKS_H
#define ATTN_DATA_LINKS_H

#include "data/sentences.h"

/* Numbers, from 0, of two words, or of two tokens. */
typedef struct attn__link {
    int32_t source, target;
} attn__link;
/* Those of a pair. */
typedef struct attn__links {
    const attn__link *items;
    int64_t n;
} attn__links;

/* Gives the pairs their links, from lines in Pharaoh's form, "0-0 1-2", the source first, one for each pair of the file
 * that they were read from or for each that was read.  Words are those between the spaces of `kept`, which are the same
 * pairs with their text kept: `pairs` themselves, or else read by `compat`.  Parts that are made of them later borrow
 * their links.  ATTN_ERROR_FORMAT: another number of lines, what is no pair of numbers, a number beyond the words (the
 * error says `name:line:`); ATTN_ERROR_MEMORY. */
attn_status attn__pairs_link(attn_pairs *pairs, const attn_pairs *kept, attn_compat compat, const char *text,
                             size_t size, const char *name);
/* Computes, for a corpus just made of pairs with links, links between tokens, those of each pair ordered by target. */
attn_status attn__corpus_link(attn_corpus *corpus, const attn_pairs *pairs, const attn_vocab *source,
                              const attn_vocab *target);
/* For each target token of a batch that has links, equal shares for its source tokens: target weights `wanted` [B,T,S],
 * zeros before. False if no token has any. */
bool attn__corpus_guide(const attn_corpus *corpus, const attn_batch *batch, float *wanted);

#endif
