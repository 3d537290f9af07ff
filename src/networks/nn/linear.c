/* SPDX-License-Identifier: MIT
 *
 * Implements a linear layer, y = x weight^T + bias.
 */
#include "nn/linear_weight.h"

#include "tensor/tensor.h"

void attn_nn_linear_init(attn_nn_linear *layer, attn_nn_builder *builder, int64_t in, int64_t out, bool bias)
{
    bool torch = builder->policy == ATTN_POLICY_TORCH;
    attn_nn_initializer weight = {.start = torch ? ATTN_INIT_KAIMING_UNIFORM : ATTN_INIT_XAVIER_UNIFORM};
    attn_nn_initializer offset = {.start = torch ? ATTN_INIT_KAIMING_UNIFORM : ATTN_INIT_ZEROS, .fan_in = (double)in};
    *layer = (attn_nn_linear){0};
    layer->weight = attn__nn_linear_weight(builder, in, out, weight);
    if (bias)
        layer->bias = attn_nn_parameter(builder, "bias", 1, &out, offset);
}

attn_tensor *attn_nn_linear_forward(const attn_nn_linear *layer, attn_tape *tape, attn_tensor *x)
{
    return attn_linear(tape, x, layer->weight, layer->bias, ATTN_ACTIVATION_IDENTITY);
}

void attn__nn_linear_in_parts(const attn_nn_linear *layer)
{
    if (layer->weight)
        layer->weight->in_parts = true;
}
