/* SPDX-License-Identifier: MIT
 *
 * What the Transformer's encoder and decoder begin with, and what their blocks are built from. */
#include "models/transformer_parts.h"

#include <math.h>

void attn__transformer_front_build(attn__transformer_front *front, attn_nn_builder *builder, const attn_config *config,
                                   int64_t vocabulary)
{
    int64_t hidden = attn_config_int(config, "num_hiddens", 0);
    attn_nn_push(builder, "embedding");
    attn_nn_embedding_init(&front->embedding, builder, vocabulary, hidden, sqrt((double)hidden));
    attn_nn_pop(builder);
    attn_nn_push(builder, "pos_encoding");
    attn_nn_positional_init(&front->positions, builder, hidden, attn_config_int(config, "max_len", 0),
                            attn_config_real(config, "dropout", 0));
    attn_nn_pop(builder);
}

attn_tensor *attn__transformer_front_forward(const attn__transformer_front *front, attn_tape *tape,
                                             const attn_tensor *tokens, int64_t first)
{
    return attn_nn_positional_embed(&front->positions, &front->embedding, tape, tokens, first);
}

attn_nn_block_options attn__transformer_block_options(const attn_config *config, bool bias)
{
    return (attn_nn_block_options){.hidden = attn_config_int(config, "num_hiddens", 0),
                                   .ffn_hidden = attn_config_int(config, "ffn_num_hiddens", 0),
                                   .heads = attn_config_int(config, "num_heads", 0),
                                   .dropout = attn_config_real(config, "dropout", 0),
                                   .bias = bias};
}
