/* SPDX-License-Identifier: MIT
 *
 * seq2seq.h - code that sequence-to-sequence architectures share: keys, inputs, the generic forward. */
#ifndef ATTN_MODELS_SEQ2SEQ_H
#define ATTN_MODELS_SEQ2SEQ_H

#include "models/model_keys.h"

#define ATTN__KEYS_VOCABULARIES                                                                                        \
    ATTN__KEY_COUNT("vocab_size", "", "tokens of source and target, where they have as many"),                         \
        ATTN__KEY_COUNT("src_vocab_size", "", "tokens of the source; default vocab_size"),                             \
        ATTN__KEY_COUNT("tgt_vocab_size", "", "tokens of the target; default vocab_size")

/* The size of the vocabulary "src_vocab_size" or "tgt_vocab_size"; 1, with an error set, if the key is missing. */
int64_t attn__vocabulary_size(attn_context *context, const attn_config *config, const char *key);

extern const attn_port attn__seq2seq_inputs[3];  /* tokens, valid_lens, tgt_tokens */
extern const attn_port attn__seq2seq_outputs[4]; /* logits and the three kinds of weights */

/* attn__kind.forward of every architecture with `seq2seq`. */
void attn__seq2seq_run(const void *self, const attn__call *call);

/* A copy that the caller owns; NULL on failure. */
attn_tensor *attn__tensor_keep(attn_context *context, const attn_tensor *x);
/* Replaces *x by a tensor that the caller owns: n slices of *x along an axis, by index. */
attn_status attn__tensor_select(attn_tensor **x, attn_context *context, int axis, const int64_t *which, int64_t n);

#endif
