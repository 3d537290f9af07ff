/* SPDX-License-Identifier: MIT
 *
 * seq2seq.h - what whole sequence-to-sequence architectures share: keys, inputs, the generic forward. */
#ifndef ATTN_MODELS_SEQ2SEQ_H
#define ATTN_MODELS_SEQ2SEQ_H

#include "models/model_keys.h"

#define ATTN__KEYS_VOCABULARIES                                                                                        \
    ATTN__KEY_COUNT("vocab_size", "", "tokens of source and target, where they have as many"),                         \
        ATTN__KEY_COUNT("src_vocab_size", "", "tokens of the source; default vocab_size"),                             \
        ATTN__KEY_COUNT("tgt_vocab_size", "", "tokens of the target; default vocab_size")

/* The named vocabulary's size ("src_vocab_size" or "tgt_vocab_size"); 1, with an error noted, if it is not set. */
int64_t attn__vocabulary_size(attn_context *context, const attn_config *config, const char *key);

extern const attn_port attn__seq2seq_inputs[3];  /* tokens, valid_lens, tgt_tokens */
extern const attn_port attn__seq2seq_outputs[4]; /* logits and the three kinds of weights */

/* attn__kind.forward of every architecture with `seq2seq`. */
void attn__seq2seq_run(const void *self, const attn__call *call);

/* A tensor of the caller's own with the same numbers; NULL on failure. */
attn_tensor *attn__tensor_keep(attn_context *context, const attn_tensor *x);
/* In the place of *x, a tensor of the caller's own: n of its slices along an axis, by their numbers. */
attn_status attn__tensor_select(attn_tensor **x, attn_context *context, int axis, const int64_t *which, int64_t n);

#endif
