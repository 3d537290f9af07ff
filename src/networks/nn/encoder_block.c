/* SPDX-License-Identifier: MIT
 *
 * Implements a block of the Transformer's encoder. Norms come after the residual connections, or before the layers
 * (pre-norm); a block may lack the first of these.
 */
#include "nn/block.h"
#include "nn/check.h"
#include "nn/named.h"

void attn__nn_attention_part(attn_nn_multi_head *layer, attn_nn_builder *builder, const char *name,
                             const attn_nn_block_options *options)
{
    attn_nn_push(builder, name);
    attn_nn_multi_head_init(
        layer, builder,
        &(attn_nn_multi_head_options){
            .hidden = options->hidden, .heads = options->heads, .bias = options->bias, .dropout = options->dropout});
    attn_nn_pop(builder);
    layer->rotary = options->rotary;
    layer->rotary_pairs = options->rotary_pairs;
}

void attn__nn_norm_part(attn_nn_add_norm *layer, attn_nn_builder *builder, const char *name,
                        const attn_nn_block_options *options)
{
    *layer = (attn_nn_add_norm){.dropout = options->dropout, .pre_norm = options->pre_norm};
    attn_nn_push(builder, name);
    attn__nn_norm_named(&layer->ln, builder, "ln", options->hidden,
                        &(attn__nn_norm_options){options->eps, options->rms, options->norm_plain});
    attn_nn_pop(builder);
}

attn_tensor *attn__nn_before(const attn_nn_add_norm *layer, attn_tape *tape, attn_tensor *x)
{
    return layer->pre_norm && layer->ln.weight ? attn_nn_layer_norm_forward(&layer->ln, tape, x) : x;
}

attn_tensor *attn__nn_behind(const attn_nn_add_norm *layer, attn_tape *tape, attn_tensor *x, attn_tensor *y)
{
    return layer->pre_norm ? attn_add(tape, x, attn_dropout(tape, y, layer->dropout))
                           : attn_nn_add_norm_forward(layer, tape, x, y);
}

void attn__nn_ffn_part(attn_nn_ffn *layer, attn_nn_builder *builder, const attn_nn_block_options *options)
{
    int64_t hidden = options->hidden, wide = options->ffn_hidden;
    attn_nn_push(builder, "ffn");
    attn__nn_linear_named(&layer->dense1, builder, "dense1", hidden, wide, !options->ffn_plain);
    if (options->gated)
        attn__nn_linear_named(&layer->gate, builder, "gate", hidden, wide, !options->ffn_plain);
    attn__nn_linear_named(&layer->dense2, builder, "dense2", wide, hidden, !options->ffn_plain);
    attn_nn_pop(builder);
    layer->activation = options->activation ? options->activation : ATTN_ACTIVATION_RELU;
    layer->dropout = options->ffn_dropout;
}

void attn_nn_encoder_block_init(attn_nn_encoder_block *block, attn_nn_builder *builder,
                                const attn_nn_block_options *options)
{
    attn__nn_attention_part(&block->attention, builder, "attention", options);
    if (options->unnormed && options->pre_norm)
        block->addnorm1 = (attn_nn_add_norm){.dropout = options->dropout, .pre_norm = true};
    else
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
