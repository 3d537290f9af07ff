/* SPDX-License-Identifier: MIT
 *
 * links.h - word alignments of sentence pairs, which link each word of the target to the source words that it comes
 * from.
 */
#ifndef ATTN_DATA_LINKS_H
#define ATTN_DATA_LINKS_H

#include "data/sentences.h"

/* A link between two words or two tokens, which are numbered from 0. */
typedef struct attn__link {
    int32_t source, target;
} attn__link;
/* The links of one pair. */
typedef struct attn__links {
    const attn__link *items;
    int64_t n;
} attn__links;

/* Reads the links of the pairs from lines in Pharaoh's form, "0-0 1-2", source first. There is one line for each pair
 * of the file, or for each pair that was read. Words are separated by the spaces of `kept`, which holds the same pairs
 * with their original text. `kept` is `pairs` itself, or pairs read by `compat`. Parts made of the pairs later borrow
 * their links. ATTN_ERROR_FORMAT: another number of lines, a malformed pair of numbers, or a number beyond the words
 * (the error says `name:line:`). ATTN_ERROR_MEMORY. */
attn_status attn__pairs_link(attn_pairs *pairs, const attn_pairs *kept, attn_compat compat, const char *text,
                             size_t size, const char *name);
/* Computes links between tokens for a new corpus of pairs with links. The links of each pair are sorted by target. */
attn_status attn__corpus_link(attn_corpus *corpus, const attn_pairs *pairs, const attn_vocab *source,
                              const attn_vocab *target);
/* Computes target weights `wanted` [B,T,S], which are initially zero: each linked target token of a batch gives equal
 * shares to its source tokens. Returns false if no token has links. */
bool attn__corpus_guide(const attn_corpus *corpus, const attn_batch *batch, float *wanted);

#endif
