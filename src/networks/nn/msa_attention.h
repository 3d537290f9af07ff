/* SPDX-License-Identifier: MIT
 *
 * msa_attention.h - attention over alignments, which computes some heads at a time.
 */
#ifndef ATTN_NN_MSA_ATTENTION_H
#define ATTN_NN_MSA_ATTENTION_H

#include "nn/msa.h"
#include "nn/token_parts.h"

typedef struct attn__head_range {
    int64_t first, n;
} attn__head_range;

/* Computes the contexts [R,C,B,n*D/H] of the n heads in `range`, before the output projection. *weights gets the
 * weights of these heads, as in nn/msa.h. source->norm must be NULL if the tape records, or if the tokens are already
 * normalized. If the tape records, `range` must be all heads. The result is bf16 if source->bf16 is set and no maps are
 * requested, because maps need more than the 8 significant bits of bf16. On failure it sets the error and returns NULL.
 */
attn_tensor *attn__msa_heads(const attn_nn_msa_attention *layer, attn_tape *tape, const attn__token_source *source,
                             const attn_tensor *keep, bool columns, const attn__head_range *range,
                             attn_tensor **weights);

/* Computes only the attention maps, without projecting values. The maps have the same bits as those of
 * attn__msa_heads. The tape must not record. */
attn_tensor *attn__msa_maps(const attn_nn_msa_attention *layer, attn_tape *tape, const attn__token_source *source,
                            const attn_tensor *keep, bool columns, const attn__head_range *range);

/* Returns the number of heads that are computed at once. It is chosen so that their projections fit max_tokens (0:
 * no limit). The heads are divided into groups of about equal size, each with at least one head. */
int64_t attn__msa_heads_at_once(int64_t heads, int64_t tokens, int64_t max_tokens);

#endif
