/* SPDX-License-Identifier: MIT
 *
 * model1.h - IBM Model 1 of the tokens of sentence pairs, and what is made of it: lexicons and word alignments.
 */
#ifndef ATTN_DATA_MODEL1_H
#define ATTN_DATA_MODEL1_H

#include "data/sentences.h"

typedef struct attn__model1 attn__model1;

/* `iterations` 0: 5.  The corpus is needed no longer, the vocabularies are. */
attn_status attn__model1_learn(attn__model1 **model, const attn_corpus *corpus, const attn_vocab *source,
                               const attn_vocab *target, int64_t iterations);
void attn__model1_free(attn__model1 *model); /* NULL is allowed */
/* That source token `source` (below 0: the empty word) has `target` as its translation; 0 of what never met. */
double attn__model1_probability(const attn__model1 *model, int32_t source, int32_t target);
attn_status attn__model1_lexicon(attn_lexicon **lexicon, const attn__model1 *model,
                                 const attn_lexicon_options *options);
/* A line for each pair, in Pharaoh's form: the likeliest source word of each target word, none where it is the empty
 * one.  Words are those between the spaces of `kept` (attn__pairs_link).  `corpus`: the pairs as tokens of the
 * vocabularies.  The caller frees *file with attn_bytes_free, on error too. */
attn_status attn__model1_align(const attn__model1 *model, const attn_corpus *corpus, const attn_vocab *source,
                               const attn_vocab *target, const attn_pairs *pairs, const attn_pairs *kept,
                               attn_compat compat, attn_bytes *file);

#endif
