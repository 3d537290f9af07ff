/* SPDX-License-Identifier: MIT */
#include "nn/block.h"

#include "nn/named.h"

void attn_nn_ffn_init(attn_nn_ffn *layer, attn_nn_builder *builder, int64_t in, int64_t hidden, int64_t out)
{
    layer->activation = ATTN_ACTIVATION_RELU;
    attn__nn_linear_named(&layer->dense1, builder, "dense1", in, hidden, true);
    attn__nn_linear_named(&layer->dense2, builder, "dense2", hidden, out, true);
}

attn_tensor *attn__nn_ffn_hidden(const attn_nn_ffn *layer, attn_tape *tape, attn_tensor *x)
{
    attn_tensor *hidden = attn_linear(tape, x, layer->dense1.weight, layer->dense1.bias, layer->activation);
    return layer->gate.weight ? attn_mul(tape, hidden, attn_nn_linear_forward(&layer->gate, tape, x)) : hidden;
}

attn_tensor *attn_nn_ffn_forward(const attn_nn_ffn *layer, attn_tape *tape, attn_tensor *x)
{
    attn_tensor *hidden = attn__nn_ffn_hidden(layer, tape, x);
    return attn_nn_linear_forward(&layer->dense2, tape, attn_dropout(tape, hidden, layer->dropout));
}
