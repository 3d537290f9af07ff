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
/* Sets which share of the batch the operations up to the next reset process. Dropout then drops the same elements as
 * for the whole batch, and batch statistics are computed over all shares. To compute these statistics, every process
 * must run the same operations. A process without examples passes count 0 and runs one placeholder example, which is
 * not counted. */
void attn_tape_shard(attn_tape *tape, attn_shard share);
attn_tape_options attn_tape_mode(const attn_tape *tape);
/* Returns the number of bytes that were copied since the reset only to rearrange data (attn_permute, attn_slice,
 * attn_concat and their gradients). Attention layers copy nothing in this way, because they read operands by
 * strides. */
uint64_t attn_tape_copied(const attn_tape *tape);

attn_context *attn_tape_context(const attn_tape *tape);

/* Begins a scope. attn_scope_end frees the tensors that were made in the scope, except `keep`, which it returns. `keep`
 * may have any shape and may be NULL. Scopes nest. While recording, only data that the backward pass does not need are
 * freed, and using a freed tensor is an error. Tensors that were not computed from a tensor that needs a gradient are
 * kept. */
void attn_scope_begin(attn_tape *tape);
attn_tensor *attn_scope_end(attn_tape *tape, attn_tensor *keep);
/* Frees the same tensors as attn_scope_end, but the scope continues. Used in a chain of steps, each of which needs
 * only the last result. */
attn_tensor *attn_scope_clear(attn_tape *tape, attn_tensor *keep);

#endif
