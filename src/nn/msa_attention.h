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

/* On tapes that record x is taken as it is: source->norm is NULL, and so it is for all that are normalized already.
 *
 * The heads' contexts [R,C,B,n*D/H], before the output's projection; *weights as in nn/msa.h, for these heads.
 * Fewer than all heads only on a tape that does not record.  In bf16 if source->bf16 and no maps are requested, which
 * need more than 8 bits.  NULL (noted) on failure. */
attn_tensor *attn__msa_heads(const attn_nn_msa_attention *layer, attn_tape *tape, const attn__token_source *source,
                             const attn_tensor *keep, bool columns, const attn__head_range *range,
                             attn_tensor **weights);

/* The maps alone, the same bits: no values are projected.  Not on a tape that records. */
attn_tensor *attn__msa_maps(const attn_nn_msa_attention *layer, attn_tape *tape, const attn__token_source *source,
                            const attn_tensor *keep, bool columns, const attn__head_range *range);

/* Heads taken together so that their projections fit max_tokens (0: no bound): equal groups, at least one head each. */
int64_t attn__msa_heads_at_once(int64_t heads, int64_t tokens, int64_t max_tokens);

#endif
