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

/* Computes the contexts of the heads in `range`, [R,C,B,n*D/H], before the output's projection. *weights is as in
 * nn/msa.h, for these heads. If the tape records, or the tokens are already normalized, source->norm is NULL and x is
 * used unchanged. Only a tape that does not record allows a part of the heads. The result is bf16 if source->bf16 is
 * set and no maps are requested, because maps need more than 8 bits. On failure it sets the error and returns NULL. */
attn_tensor *attn__msa_heads(const attn_nn_msa_attention *layer, attn_tape *tape, const attn__token_source *source,
                             const attn_tensor *keep, bool columns, const attn__head_range *range,
                             attn_tensor **weights);

/* Computes only the attention maps, with the same bits as attn__msa_heads. Values are not projected. The tape must
 * not record. */
attn_tensor *attn__msa_maps(const attn_nn_msa_attention *layer, attn_tape *tape, const attn__token_source *source,
                            const attn_tensor *keep, bool columns, const attn__head_range *range);

/* Returns the number of heads that are computed at once, so that their projections fit max_tokens (0: no limit). The
 * heads are divided into equal groups of at least one head. */
int64_t attn__msa_heads_at_once(int64_t heads, int64_t tokens, int64_t max_tokens);

#endif
