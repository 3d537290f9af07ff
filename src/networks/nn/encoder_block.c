/* SPDX-License-Identifier: MIT
 *
 * Implements a block of the Transformer's encoder. Norms come after the residual connections, or before the layers
 * (pre-norm).
 */
#include "nn/block.h"
#include "nn/check.h"

void attn__nn_attention_part(attn_nn_multi_head *layer, attn_nn_builder *builder, const char *name,
                             const attn_nn_block_options *options)
{
    attn_nn_push(builder, name);
    attn_nn_multi_head_init(
        layer, builder,
        &(attn_nn_multi_head_options){
            .hidden = options->hidden, .heads = options->heads, .bias = options->bias, .dropout = options->dropout});
    attn_nn_pop(builder);
}

void attn__nn_norm_part(attn_nn_add_norm *layer, attn_nn_builder *builder, const char *name,
                        const attn_nn_block_options *options)
{
    attn_nn_push(builder, name);
    attn_nn_add_norm_init(layer, builder, options->hidden, options->dropout);
    attn_nn_pop(builder);
    layer->pre_norm = options->pre_norm;
    layer->ln.eps = options->eps > 0 ? options->eps : layer->ln.eps;
}

attn_tensor *attn__nn_before(const attn_nn_add_norm *layer, attn_tape *tape, attn_tensor *x)
{
    return layer->pre_norm ? attn_nn_layer_norm_forward(&layer->ln, tape, x) : x;
}

attn_tensor *attn__nn_behind(const attn_nn_add_norm *layer, attn_tape *tape, attn_tensor *x, attn_tensor *y)
{
    return layer->pre_norm ? attn_add(tape, x, attn_dropout(tape, y, layer->dropout))
                           : attn_nn_add_norm_forward(layer, tape, x, y);
}

void attn__nn_ffn_part(attn_nn_ffn *layer, attn_nn_builder *builder, const attn_nn_block_options *options)
{
    attn_nn_push(builder, "ffn");
    attn_nn_ffn_init(layer, builder, options->hidden, options->ffn_hidden, options->hidden);
    attn_nn_pop(builder);
    layer->activation = options->activation ? options->activation : ATTN_ACTIVATION_RELU;
    layer->dropout = options->ffn_dropout;
}

void attn_nn_encoder_block_init(attn_nn_encoder_block *block, attn_nn_builder *builder,
                                const attn_nn_block_options *options)
{
    attn__nn_attention_part(&block->attention, builder, "attention", options);
    attn__nn_norm_part(&block->addnorm1, builder, "addnorm1", options);
    attn__nn_ffn_part(&block->ffn, builder, options);
    attn__nn_norm_part(&block->addnorm2, builder, "addnorm2", options);
}

attn_tensor *attn__nn_placed(attn_tape *tape, attn_tensor *x, attn_tensor *positions)
{
    if (!x || !positions || !attn__nn_positions_fit(tape, "positions", x, positions))
        return positions ? NULL : x;
    return attn_add(tape, x, positions);
}

attn_tensor *attn_nn_encoder_block_forward(const attn_nn_encoder_block *block, attn_tape *tape, attn_tensor *x,
                                           attn_tensor *positions, const attn_nn_mask *mask, attn_tensor **weights)
{
    attn_tensor *read = attn__nn_before(&block->addnorm1, tape, x), *placed = attn__nn_placed(tape, read, positions);
    attn_tensor *attended = attn_nn_multi_head_forward(&block->attention, tape, placed, placed, read, mask, weights);
    attn_tensor *y = attn__nn_behind(&block->addnorm1, tape, x, attended);
    read = attn__nn_before(&block->addnorm2, tape, y);
    return attn__nn_behind(&block->addnorm2, tape, y, attn_nn_ffn_forward(&block->ffn, tape, read));
}
