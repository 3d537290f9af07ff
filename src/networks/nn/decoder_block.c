/* SPDX-License-Identifier: MIT
 *
 * Implements a block of the Transformer's decoder. The block runs on a whole sequence, or on one token at a time.
 */
#include "nn/block.h"
#include "nn/guided.h"

void attn_nn_decoder_block_init(attn_nn_decoder_block *block, attn_nn_builder *builder,
                                const attn_nn_block_options *options)
{
    attn__nn_attention_part(&block->attention1, builder, "attention1", options);
    attn__nn_norm_part(&block->addnorm1, builder, "addnorm1", options);
    attn__nn_attention_part(&block->attention2, builder, "attention2", options);
    attn__nn_norm_part(&block->addnorm2, builder, "addnorm2", options);
    attn__nn_ffn_part(&block->ffn, builder, options);
    attn__nn_norm_part(&block->addnorm3, builder, "addnorm3", options);
}

static attn_tensor *feed_forward(const attn_nn_decoder_block *block, attn_tape *tape, attn_tensor *z)
{
    attn_tensor *read = attn__nn_before(&block->addnorm3, tape, z);
    return attn__nn_behind(&block->addnorm3, tape, z, attn_nn_ffn_forward(&block->ffn, tape, read));
}

/* Adds the result of the block's self-attention to x. */
static attn_tensor *attend_self(const attn_nn_decoder_block *block, attn_tape *tape, attn_tensor *x,
                                attn_tensor *positions, const attn_nn_mask *mask, attn_tensor **weights)
{
    attn_tensor *read = attn__nn_before(&block->addnorm1, tape, x), *placed = attn__nn_placed(tape, read, positions);
    attn_tensor *own = attn_nn_multi_head_forward(&block->attention1, tape, placed, placed, read, mask, weights);
    return attn__nn_behind(&block->addnorm1, tape, x, own);
}

attn_tensor *attn_nn_decoder_block_forward(const attn_nn_decoder_block *block, attn_tape *tape, attn_tensor *x,
                                           attn_tensor *encoded, const attn_nn_positions *positions,
                                           const attn_nn_mask *self_mask, const attn_nn_mask *cross_mask,
                                           attn_tensor **self_weights, attn_tensor **cross_weights)
{
    const attn_nn_positions at = positions ? *positions : (attn_nn_positions){0};
    attn_tensor *y = attend_self(block, tape, x, at.own, self_mask, self_weights);
    attn_tensor *read = attn__nn_placed(tape, attn__nn_before(&block->addnorm2, tape, y), at.own);
    attn_tensor *seen = attn_nn_multi_head_forward(
        &block->attention2, tape, read, attn__nn_placed(tape, encoded, at.encoded), encoded, cross_mask, cross_weights);
    return feed_forward(block, tape, attn__nn_behind(&block->addnorm2, tape, y, seen));
}

attn_tensor *attn__nn_decoder_block_guided(const attn_nn_decoder_block *block, attn_tape *tape, attn_tensor *x,
                                           attn_tensor *encoded, const attn_nn_mask *self_mask,
                                           const attn_nn_mask *cross_mask, attn_tensor **cross_weights)
{
    attn_tensor *y = attend_self(block, tape, x, NULL, self_mask, NULL);
    attn_tensor *read = attn__nn_before(&block->addnorm2, tape, y);
    attn_tensor *seen =
        attn__nn_multi_head_guided(&block->attention2, tape, read, encoded, encoded, cross_mask, cross_weights);
    return feed_forward(block, tape, attn__nn_behind(&block->addnorm2, tape, y, seen));
}

attn_tensor *attn_nn_decoder_block_step(const attn_nn_decoder_block *block, attn_tape *tape, attn_tensor *x,
                                        attn_nn_kv_cache *self, const attn_nn_kv_cache *cross,
                                        const attn_nn_mask *cross_mask)
{
    attn_tensor *read = attn__nn_before(&block->addnorm1, tape, x);
    if (!read || attn_nn_multi_head_append(&block->attention1, tape, read, self) != ATTN_OK)
        return NULL;
    /* No causal mask is needed, because the cache holds only this token and earlier tokens. */
    attn_tensor *own = attn_nn_multi_head_cached(&block->attention1, tape, read, self, NULL);
    attn_tensor *y = attn__nn_behind(&block->addnorm1, tape, x, own);
    int64_t sentences = attn_tensor_length(cross->k, 0), rows = attn_tensor_length(x, 0),
            dim = attn_tensor_length(x, 2);
    attn_tensor *queries =
        attn_reshape(tape, attn__nn_before(&block->addnorm2, tape, y), 3, (int64_t[]){sentences, -1, dim});
    attn_tensor *seen = attn_nn_multi_head_cached(&block->attention2, tape, queries, cross, cross_mask);
    seen = attn_reshape(tape, seen, 3, (int64_t[]){rows, 1, dim});
    return feed_forward(block, tape, attn__nn_behind(&block->addnorm2, tape, y, seen));
}
