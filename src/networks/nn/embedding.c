/* SPDX-License-Identifier: MIT
 *
 * Implements the embedding, which reads a row of a table for each id.
 */
#include "nn/layers.h"

#include "tensor/tensor.h"

void attn_nn_embedding_init(attn_nn_embedding *layer, attn_nn_builder *builder, int64_t vocabulary, int64_t dim,
                            double scale)
{
    attn_nn_initializer fill = {.start = ATTN_INIT_NORMAL};
    *layer = (attn_nn_embedding){.scale = scale > 0 ? scale : 1};
    /* With this scale the embeddings have variance 1 after their multiplication by layer->scale. The positional
     * encoding, which is added to them, has a similar variance. */
    if (builder->policy == ATTN_POLICY_XAVIER)
        fill.scale = 1 / layer->scale;
    layer->weight = attn_nn_parameter(builder, "weight", 2, (int64_t[]){vocabulary, dim}, fill);
    if (layer->weight)
        layer->weight->table = true;
}

attn_tensor *attn_nn_embedding_forward(const attn_nn_embedding *layer, attn_tape *tape, const attn_tensor *ids)
{
    return attn_embedding(tape, layer->weight, ids, layer->scale, NULL, 0);
}
