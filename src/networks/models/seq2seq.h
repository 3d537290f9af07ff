/* SPDX-License-Identifier: MIT
 *
 * seq2seq.h - keys, inputs and functions that sequence-to-sequence architectures share.
 */
#ifndef ATTN_MODELS_SEQ2SEQ_H
#define ATTN_MODELS_SEQ2SEQ_H

#include "models/model_keys.h"

#define ATTN__KEYS_VOCABULARIES                                                                                        \
    ATTN__KEY_COUNT("vocab_size", "", "tokens of source and target, where both have the same number"),                 \
        ATTN__KEY_COUNT("src_vocab_size", "", "tokens of the source; default vocab_size"),                             \
        ATTN__KEY_COUNT("tgt_vocab_size", "", "tokens of the target; default vocab_size")

/* Returns the size of the vocabulary "src_vocab_size" or "tgt_vocab_size". If the key is missing, it sets an error
 * and returns 1. */
int64_t attn__vocabulary_size(attn_context *context, const attn_config *config, const char *key);

extern const attn_port attn__seq2seq_inputs[3]; /* the inputs tokens, valid_lens and tgt_tokens */
/* the outputs: logits, and three kinds of attention weights of the encoder and decoder */
extern const attn_port attn__seq2seq_outputs[4];

/* Implements `forward` of attn__kind for all architectures that have a `seq2seq`. */
void attn__seq2seq_run(const void *self, const attn__call *call);

/* Returns a copy of a tensor, which the caller owns, or NULL on failure. */
attn_tensor *attn__tensor_keep(attn_context *context, const attn_tensor *x);
/* Replaces *x by a new tensor that the caller owns. The new tensor consists of n slices of *x along `axis`. `which`
 * holds the indices of the slices. */
attn_status attn__tensor_select(attn_tensor **x, attn_context *context, int axis, const int64_t *which, int64_t n);

#endif
