/* SPDX-License-Identifier: MIT
 *
 * links.h - word alignments of sentence pairs. They link a word of the target sentence to the source words from which
 * it was translated.
 */
#ifndef ATTN_DATA_LINKS_H
#define ATTN_DATA_LINKS_H

#include "data/sentences.h"

/* A link between two words or between two tokens. Words and tokens are numbered from 0. */
typedef struct attn__link {
    int32_t source, target;
} attn__link;
typedef struct attn__links {
    const attn__link *items;
    int64_t n;
} attn__links;

/* Reads the links of the pairs from lines in Pharaoh's form, "0-0 1-2", source first. There is one line for each pair
 * of the file, or for each pair that was read. The numbers count the words of `kept`, which holds the same pairs with
 * their original text. `kept` may be `pairs` itself; if not, `pairs` must have been normalized with `compat`. Parts
 * that are made of the pairs later borrow the links. ATTN_ERROR_FORMAT: the number of lines is wrong, a pair of numbers
 * is malformed, or a number is beyond the last word; the message begins with `name:line:`. ATTN_ERROR_MEMORY: there is
 * no memory. */
attn_status attn__pairs_link(attn_pairs *pairs, const attn_pairs *kept, attn_compat compat, const char *text,
                             size_t size, const char *name);
/* Computes links between tokens from the links between words, for a new corpus of these pairs. The links of each
 * pair are sorted by target token. */
attn_status attn__corpus_link(attn_corpus *corpus, const attn_pairs *pairs, const attn_vocab *source,
                              const attn_vocab *target);
/* Computes the target weights `wanted` [B,T,S] of a batch. `wanted` must be zero before. A linked target token gets
 * weights that are equal for all its source tokens and sum to 1. Returns false if no token has links. */
bool attn__corpus_guide(const attn_corpus *corpus, const attn_batch *batch, float *wanted);

#endif
