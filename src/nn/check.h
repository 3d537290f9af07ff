/* SPDX-License-Identifier: MIT
 *
 * check.h - checks of layers' inputs before they are used. */
#ifndef ATTN_NN_CHECK_H
#define ATTN_NN_CHECK_H

#include "nn/layers.h"

/* Whether `x` has this rank; otherwise sets ATTN_ERROR_SHAPE and names `what`. If x is NULL, the error was set
 * before. */
bool attn__nn_has_rank(attn_tape *tape, const attn_tensor *x, int rank, const char *what);

/* The same, and also checks that axis `axis` has length `channels`. */
bool attn__nn_has_channels(attn_tape *tape, const char *what, const attn_tensor *x, int rank, int axis,
                           int64_t channels);

/* Whether `positions` (may be NULL) are [1,N,D] or [B,N,D] for x [B,N,D], so that the sum has x's shape. */
bool attn__nn_positions_fit(attn_tape *tape, const char *what, const attn_tensor *x, const attn_tensor *positions);

/* Whether queries, keys and values are [B,Tq,.], [B,Tk,.], [B,Tk,.], lengths (if any) are I32 [B] or [B,Tq], and the
 * mask bytes of keys (if any) are U8 [B,Tk]. */
bool attn__nn_attention_fits(attn_tape *tape, const attn_tensor *queries, const attn_tensor *keys,
                             const attn_tensor *values, const attn_nn_mask *mask);

/* Whether the lengths of `mask` (if any) are I32 [batch] or [batch,queries]. */
bool attn__nn_lens_fit(attn_tape *tape, const attn_nn_mask *mask, int64_t batch, int64_t queries);

/* 0: no lengths, 1: one per batch item, 2: one per query (attn_heads.lens_per). */
int attn__nn_lens_per(const attn_nn_mask *mask);

#endif
