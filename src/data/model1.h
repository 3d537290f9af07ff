/* SPDX-License-Identifier: MIT
 *
 * model1.h - IBM Model 1 over the tokens of sentence pairs, from which lexicons and word alignments are made. */
#ifndef ATTN_DATA_MODEL1_H
#define ATTN_DATA_MODEL1_H

#include "data/sentences.h"

typedef struct attn__model1 attn__model1;

/* Learns the model in `iterations` steps (0: 5). Afterwards the corpus is not needed, but the vocabularies are. */
attn_status attn__model1_learn(attn__model1 **model, const attn_corpus *corpus, const attn_vocab *source,
                               const attn_vocab *target, int64_t iterations);
void attn__model1_free(attn__model1 *model); /* NULL is allowed */
/* Returns the probability that source token `source` (below 0: the empty word) translates to `target`. Returns 0 if
 * they never occurred together. */
double attn__model1_probability(const attn__model1 *model, int32_t source, int32_t target);
attn_status attn__model1_lexicon(attn_lexicon **lexicon, const attn__model1 *model,
                                 const attn_lexicon_options *options);
/* Writes one line for each pair in Pharaoh's form. The line links each target word to its likeliest source word, or to
 * no word if the empty word is likeliest. Words are separated by the spaces of `kept` (attn__pairs_link). `corpus`
 * holds the pairs as tokens of the vocabularies. The caller frees *file with attn_bytes_free, on error too. */
attn_status attn__model1_align(const attn__model1 *model, const attn_corpus *corpus, const attn_vocab *source,
                               const attn_vocab *target, const attn_pairs *pairs, const attn_pairs *kept,
                               attn_compat compat, attn_bytes *file);

#endif
