/* SPDX-License-Identifier: MIT */
#include "nn/spatial.h"

void attn_nn_batch_norm_init(attn_nn_batch_norm *layer, attn_nn_builder *builder, int64_t channels, bool zero)
{
    const attn_nn_initializer zeros = {.start = ATTN_INIT_ZEROS}, ones = {.start = ATTN_INIT_ONES};
    *layer = (attn_nn_batch_norm){.momentum = 0.1, .eps = 1e-5};
    layer->weight = attn_nn_parameter(builder, "weight", 1, &channels, zero ? zeros : ones);
    layer->bias = attn_nn_parameter(builder, "bias", 1, &channels, zeros);
    layer->running_mean = attn_nn_buffer(builder, "running_mean", 1, &channels, zeros);
    layer->running_var = attn_nn_buffer(builder, "running_var", 1, &channels, ones);
    /* The buffer exists only so that PyTorch's files can be loaded without an unknown tensor. It counts batches,
     * which PyTorch needs if its momentum is None. Here it is not used. */
    (void)attn_nn_buffer(builder, "num_batches_tracked", 0, &channels, zeros);
}

attn_tensor *attn_nn_batch_norm_forward(const attn_nn_batch_norm *layer, attn_tape *tape, attn_tensor *x)
{
    return attn_batch_norm(tape, x, layer->weight, layer->bias, layer->running_mean, layer->running_var,
                           layer->momentum, layer->eps);
}
