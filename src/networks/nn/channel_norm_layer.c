/* SPDX-License-Identifier: MIT
 *
 * Implements the normalization over channels that come before the spatial axes.
 */
#include "nn/axial.h"

void attn_nn_channel_norm_init(attn_nn_channel_norm *layer, attn_nn_builder *builder, int64_t channels, double eps)
{
    /* g and b have this shape because they have it in the original's files */
    const int64_t shape[4] = {1, channels, 1, 1};
    *layer = (attn_nn_channel_norm){.eps = eps > 0 ? eps : 1e-5};
    layer->g = attn_nn_parameter(builder, "g", 4, shape, (attn_nn_initializer){.start = ATTN_INIT_ONES});
    layer->b = attn_nn_parameter(builder, "b", 4, shape, (attn_nn_initializer){.start = ATTN_INIT_ZEROS});
}

attn_tensor *attn_nn_channel_norm_forward(const attn_nn_channel_norm *layer, attn_tape *tape, attn_tensor *x)
{
    return attn_channel_norm(tape, x, 1, layer->g, layer->b, layer->eps, ATTN_NORM_DEVIATION);
}
