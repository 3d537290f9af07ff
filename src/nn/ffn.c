/* SPDX-License-Identifier: MIT
 *
 * The position-wise feed-forward network. */
#include "nn/block.h"

void attn_nn_ffn_init(attn_nn_ffn *layer, attn_nn_builder *builder, int64_t in, int64_t hidden, int64_t out)
{
    layer->activation = ATTN_ACTIVATION_RELU;
    attn_nn_push(builder, "dense1");
    attn_nn_linear_init(&layer->dense1, builder, in, hidden, true);
    attn_nn_pop(builder);
    attn_nn_push(builder, "dense2");
    attn_nn_linear_init(&layer->dense2, builder, hidden, out, true);
    attn_nn_pop(builder);
}

attn_tensor *attn__nn_ffn_hidden(const attn_nn_ffn *layer, attn_tape *tape, attn_tensor *x)
{
    return attn_linear(tape, x, layer->dense1.weight, layer->dense1.bias, layer->activation);
}

attn_tensor *attn_nn_ffn_forward(const attn_nn_ffn *layer, attn_tape *tape, attn_tensor *x)
{
    return attn_nn_linear_forward(&layer->dense2, tape, attn__nn_ffn_hidden(layer, tape, x));
}
