/* SPDX-License-Identifier: MIT
 *
 * msa_attention.h - attention over alignments, some heads at a time. */
#ifndef ATTN_NN_MSA_ATTENTION_H
#define ATTN_NN_MSA_ATTENTION_H

#include "nn/msa.h"
#include "nn/token_parts.h"

typedef struct attn__head_range {
    int64_t first, n;
} attn__head_range;

/* If the tape records, or the tokens are already normalized, source->norm is NULL and x is used unchanged.
 *
 * The heads' contexts [R,C,B,n*D/H], before the output's projection; *weights as in nn/msa.h, for these heads.
 * A part of the heads is only possible on a tape that does not record. The result is bf16 if source->bf16 and no maps
 * are requested (maps need more than 8 bits). NULL (error set) on failure. */
attn_tensor *attn__msa_heads(const attn_nn_msa_attention *layer, attn_tape *tape, const attn__token_source *source,
                             const attn_tensor *keep, bool columns, const attn__head_range *range,
                             attn_tensor **weights);

/* Computes only the maps, with the same bits: values are not projected. Not on a tape that records. */
attn_tensor *attn__msa_maps(const attn_nn_msa_attention *layer, attn_tape *tape, const attn__token_source *source,
                            const attn_tensor *keep, bool columns, const attn__head_range *range);

/* The number of heads computed at once so that their projections fit max_tokens (0: no bound): equal groups, at least
 * one head each. */
int64_t attn__msa_heads_at_once(int64_t heads, int64_t tokens, int64_t max_tokens);

#endif
