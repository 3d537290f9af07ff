/* SPDX-License-Identifier: MIT
 *
 * tape_state.h - the state of a tape: its context and mode, the share of a batch that it runs, scopes.
 */
#ifndef ATTN_TENSOR_TAPE_STATE_H
#define ATTN_TENSOR_TAPE_STATE_H

#include "attn/tensor.h"

/* Examples [first, first + count) of a batch of `whole` examples that is divided among several processes. */
typedef struct attn_shard {
    int64_t first, count, whole;
} attn_shard;
/* The batch of the next operations is such a share, until the next reset: dropout drops what it would in the
 * whole batch, and batch statistics are those of all shares (then every process must run the same operations).  A
 * process without examples passes count 0 and runs one placeholder example, which is not counted. */
void attn_tape_shard(attn_tape *tape, attn_shard share);
attn_tape_options attn_tape_mode(const attn_tape *tape);
/* Bytes copied since the reset only to rearrange data (attn_permute, attn_slice, attn_concat and their gradients).
 * Attention layers leave this 0, because they read operands by strides. */
uint64_t attn_tape_copied(const attn_tape *tape);

attn_context *attn_tape_context(const attn_tape *tape);

/* Tensors made between begin and end are freed at the end, all but `keep` (any shape; may be NULL); returns it.
 * Scopes nest.  While recording, their data are freed as far as the backward pass does not need them, which
 * saves memory, and using one again is an error; tensors that were not computed from any that needs a
 * gradient stay. */
void attn_scope_begin(attn_tape *tape);
attn_tensor *attn_scope_end(attn_tape *tape, attn_tensor *keep);
/* Frees as attn_scope_end does, but the scope continues. Meant for a chain in which each step needs only the last
 * result. */
attn_tensor *attn_scope_clear(attn_tape *tape, attn_tensor *keep);

#endif
