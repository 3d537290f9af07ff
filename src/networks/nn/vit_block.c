/* SPDX-License-Identifier: MIT
 *
 * Implements the parts of a Vision Transformer: the projection of image patches, and pre-norm blocks.
 */
#include "nn/check.h"

#include "nn/spatial.h"
#include "base/context.h"
#include "nn/named.h"
#include "tensor/tape_state.h"

void attn_nn_vit_block_init(attn_nn_vit_block *block, attn_nn_builder *builder,
                            const attn_nn_vit_block_options *options)
{
    const attn_nn_vit_block_options *o = options;
    *block = (attn_nn_vit_block){.activation = o->activation, .dropout = o->dropout};
    attn__nn_layer_norm_named(&block->ln1, builder, "ln1", o->hidden, o->eps);
    attn_nn_push(builder, "attention");
    attn_nn_multi_head_init(
        &block->attention, builder,
        &(attn_nn_multi_head_options){.hidden = o->hidden, .heads = o->heads, .bias = o->bias, .dropout = o->dropout});
    attn_nn_pop(builder);
    attn__nn_layer_norm_named(&block->ln2, builder, "ln2", o->hidden, o->eps);
    attn_nn_push(builder, "mlp");
    attn__nn_linear_named(&block->dense1, builder, "dense1", o->hidden, o->mlp_hidden, true);
    attn__nn_linear_named(&block->dense2, builder, "dense2", o->mlp_hidden, o->hidden, true);
    attn_nn_pop(builder);
}

attn_tensor *attn_nn_vit_block_forward(const attn_nn_vit_block *block, attn_tape *tape, attn_tensor *x,
                                       const attn_nn_mask *mask, attn_tensor **weights)
{
    attn_tensor *y = attn_nn_layer_norm_forward(&block->ln1, tape, x);
    x = attn_add(tape, x, attn_nn_multi_head_forward(&block->attention, tape, y, y, y, mask, weights));
    y = attn_nn_layer_norm_forward(&block->ln2, tape, x);
    y = attn_linear(tape, y, block->dense1.weight, block->dense1.bias, block->activation);
    y = attn_nn_linear_forward(&block->dense2, tape, attn_dropout(tape, y, block->dropout));
    return attn_add(tape, x, attn_dropout(tape, y, block->dropout));
}

/* ---------------------------------------------------------------------------------------------- patches */

void attn_nn_patches_init(attn_nn_conv *conv, attn_nn_builder *builder, int64_t channels, int64_t hidden,
                          int64_t height, int64_t width)
{
    attn__nn_conv_named(conv, builder, "conv",
                        &(attn_nn_conv_options){.spatial = 2,
                                                .in_channels = channels,
                                                .out_channels = hidden,
                                                .kernel = {height, width},
                                                .stride = {height, width},
                                                .bias = true});
}

attn_tensor *attn_nn_patches_forward(const attn_nn_conv *conv, attn_tape *tape, attn_tensor *x)
{
    if (!attn__nn_has_rank(tape, x, 4, "patches: x") || !conv->weight)
        return NULL;
    int64_t batch = attn_tensor_length(x, 0), c = attn_tensor_length(x, 1);
    int64_t high = attn_tensor_length(conv->weight, 2), wide = attn_tensor_length(conv->weight, 3);
    int64_t rows = attn_tensor_length(x, 2) / high, cols = attn_tensor_length(x, 3) / wide;
    if (c != attn_tensor_length(conv->weight, 1) || rows < 1 || cols < 1) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE,
                   "patches: expected an image of %lld channels, at least %lld x %lld; found [%lld,%lld,%lld,%lld]",
                   (long long)attn_tensor_length(conv->weight, 1), (long long)high, (long long)wide, (long long)batch,
                   (long long)c, (long long)attn_tensor_length(x, 2), (long long)attn_tensor_length(x, 3));
        return NULL;
    }
    x = attn_slice(tape, attn_slice(tape, x, 2, 0, rows * high), 3, 0, cols * wide);
    /* [B,C,rows,Py,cols,Px] becomes [B,rows,cols,C,Py,Px], so that each row of the matrix is one patch in the layout
     * of the kernel. */
    x = attn_reshape(tape, x, 6, (int64_t[]){batch, c, rows, high, cols, wide});
    x = attn_permute(tape, x, (int[]){0, 2, 4, 1, 3, 5});
    x = attn_reshape(tape, x, 3, (int64_t[]){batch, rows * cols, c * high * wide});
    attn_tensor *w = attn_reshape(tape, conv->weight, 2, (int64_t[]){-1, c * high * wide});
    return attn_linear(tape, x, w, conv->bias, ATTN_ACTIVATION_IDENTITY);
}
