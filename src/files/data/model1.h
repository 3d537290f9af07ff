/* SPDX-License-Identifier: MIT
 *
 * model1.h - IBM Model 1 over the tokens of sentence pairs. Lexicons and word alignments are computed from it.
 */
#ifndef ATTN_DATA_MODEL1_H
#define ATTN_DATA_MODEL1_H

#include "data/sentences.h"

typedef struct attn__model1 attn__model1;

/* Learns the model in `iterations` iterations (0: 5). The corpus is not needed afterwards. The vocabularies must
 * outlive the model. */
attn_status attn__model1_learn(attn__model1 **model, const attn_corpus *corpus, const attn_vocab *source,
                               const attn_vocab *target, int64_t iterations);
void attn__model1_free(attn__model1 *model); /* NULL is allowed */
/* Returns the probability that the source token `source` translates to `target`. A negative `source` means the empty
 * word. Returns 0 if the two tokens never occur in the same pair. */
double attn__model1_probability(const attn__model1 *model, int32_t source, int32_t target);
attn_status attn__model1_lexicon(attn_lexicon **lexicon, const attn__model1 *model,
                                 const attn_lexicon_options *options);
/* Writes word alignments in Pharaoh's form, with one line for each pair. The line links each target word to its
 * likeliest source word, or to no word if the empty word is the likeliest. Words are those of `kept`, separated by
 * spaces (see attn__pairs_link). `corpus` holds the same pairs as tokens. The caller frees *file with attn_bytes_free,
 * even on error. */
attn_status attn__model1_align(const attn__model1 *model, const attn_corpus *corpus, const attn_vocab *source,
                               const attn_vocab *target, const attn_pairs *pairs, const attn_pairs *kept,
                               attn_compat compat, attn_bytes *file);

#endif
