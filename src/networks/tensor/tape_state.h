/* SPDX-License-Identifier: MIT
 *
 * tape_state.h - the state of a tape: its context, its mode, its share of a batch, its scopes.
 */
#ifndef ATTN_TENSOR_TAPE_STATE_H
#define ATTN_TENSOR_TAPE_STATE_H

#include "attn/tensor.h"

/* A part of a batch that is divided among several processes: examples [first, first + count) of `whole` examples. */
typedef struct attn_shard {
    int64_t first, count, whole;
} attn_shard;
/* Sets the share of the batch that this process computes until the next reset. Dropout then drops the same elements as
 * for the whole batch, and batch statistics are computed over all shares, for which every process must run the same
 * operations. A process without examples passes count 0 and runs one placeholder example, which is not counted. */
void attn_tape_shard(attn_tape *tape, attn_shard share);
attn_tape_options attn_tape_mode(const attn_tape *tape);
/* Returns the number of bytes that attn_permute, attn_slice, attn_concat and their gradients have copied since the
 * reset. Attention layers copy nothing in this way, because they read operands by strides. */
uint64_t attn_tape_copied(const attn_tape *tape);

attn_context *attn_tape_context(const attn_tape *tape);

/* Begins a scope. attn_scope_end frees the tensors that were made in the scope, except `keep`, which it returns. `keep`
 * may have any shape and may be NULL. Scopes may be nested. While recording, only data that the backward pass does not
 * need are freed, and a freed tensor must not be used. Tensors that were not computed from a tensor that needs a
 * gradient are kept. */
void attn_scope_begin(attn_tape *tape);
attn_tensor *attn_scope_end(attn_tape *tape, attn_tensor *keep);
/* Frees the same tensors as attn_scope_end, but the scope continues. This is for a chain of steps, each of which needs
 * only the result of the step before. */
attn_tensor *attn_scope_clear(attn_tape *tape, attn_tensor *keep);

#endif
