/* SPDX-License-Identifier: MIT
 *
 * check.h - checks of layers' inputs before they are used. */
#ifndef ATTN_NN_CHECK_H
#define ATTN_NN_CHECK_H

#include "nn/layers.h"

/* Checks that `x` has this rank. Otherwise it returns false and sets ATTN_ERROR_SHAPE with a message that names
 * `what`. If x is NULL, it only returns false, because the error was set before. */
bool attn__nn_has_rank(attn_tape *tape, const attn_tensor *x, int rank, const char *what);

/* Checks that `x` has this rank, and that its axis `axis` has the length `channels`. Otherwise it fails like
 * attn__nn_has_rank. */
bool attn__nn_has_channels(attn_tape *tape, const char *what, const attn_tensor *x, int rank, int axis,
                           int64_t channels);

/* Checks that `positions` (may be NULL) have the shape [1,N,D] or [B,N,D] for x [B,N,D], so that the sum has the
 * shape of x. */
bool attn__nn_positions_fit(attn_tape *tape, const char *what, const attn_tensor *x, const attn_tensor *positions);

/* Checks the shapes of an attention's inputs. Queries must be [B,Tq,.], and keys and values [B,Tk,.]. If the mask
 * has lengths, these must be I32 [B] or [B,Tq]. If the mask has bytes for the keys, these must be U8 [B,Tk]. */
bool attn__nn_attention_fits(attn_tape *tape, const attn_tensor *queries, const attn_tensor *keys,
                             const attn_tensor *values, const attn_nn_mask *mask);

/* Checks the lengths of `mask`, which must be I32 [batch] or [batch,queries]. A mask without lengths passes the
 * check. */
bool attn__nn_lens_fit(attn_tape *tape, const attn_nn_mask *mask, int64_t batch, int64_t queries);

/* Returns 0 if the mask has no lengths, 1 for one length per batch item, and 2 for one length per query
 * (attn_heads.lens_per). */
int attn__nn_lens_per(const attn_nn_mask *mask);

#endif
