/* SPDX-License-Identifier: MIT
 *
 * Implements the input layers of the Transformer's encoder and decoder, and reads the settings that the blocks of both
 * share.
 */
#include "models/transformer_parts.h"

#include "base/context.h"
#include "nn/named.h"
#include "tensor/tensor.h"

#include <math.h>
#include <stdio.h>

const char *const attn__norm_choices[] = {"post", "pre", NULL};
const char *const attn__activation_choices[] = {"relu", "gelu", "gelu_tanh", "gelu_sigmoid", "silu", NULL};
static const attn_activation activations[] = {ATTN_ACTIVATION_RELU, ATTN_ACTIVATION_GELU_ERF, ATTN_ACTIVATION_GELU_TANH,
                                              ATTN_ACTIVATION_GELU_SIGMOID, ATTN_ACTIVATION_SILU};
const char *const attn__position_choices[] = {"interleaved", "halves", "halves-t2t", "learned", "none", NULL};
const char *const attn__scale_choices[] = {"sqrt", "one", NULL};
const char *const attn__tie_choices[] = {"none", "decoder", "all", NULL};

int64_t attn__transformer_size(const attn_config *config, attn__half half, const char *key)
{
    char own[64];
    snprintf(own, sizeof own, "%s_%s", half == ATTN__ENCODER ? "enc" : "dec", key);
    return attn_config_int(config, own, attn_config_int(config, key, 0));
}

attn_tensor *attn__transformer_norm(const attn_nn_layer_norm *norm, attn_tape *tape, attn_tensor *x)
{
    return norm->weight ? attn_nn_layer_norm_forward(norm, tape, x) : x;
}

void attn__transformer_norm_build(attn_nn_layer_norm *norm, attn_nn_builder *builder, const attn_config *config,
                                  const char *key, const char *name)
{
    *norm = (attn_nn_layer_norm){0};
    if (!attn_config_bool(config, key, false))
        return;
    attn__nn_layer_norm_named(norm, builder, name, attn_config_int(config, "num_hiddens", 0),
                              attn_config_real(config, "eps", 0));
}

void attn__transformer_front_build(attn__transformer_front *front, attn_nn_builder *builder, const attn_config *config,
                                   int64_t vocabulary, attn_tensor *shared)
{
    int64_t hidden = attn_config_int(config, "num_hiddens", 0);
    double scale = attn__config_choice(config, "embedding_scale", attn__scale_choices) == 0 ? sqrt((double)hidden) : 1;
    attn_nn_position_kind kind =
        (attn_nn_position_kind)attn__config_choice(config, "positions", attn__position_choices);
    if (shared)
        front->embedding = (attn_nn_embedding){.weight = shared, .scale = scale};
    else
        attn__nn_embedding_named(&front->embedding, builder, "embedding", vocabulary, hidden, scale);
    attn_nn_push(builder, kind == ATTN_NN_POSITION_LEARNED ? "pos_embedding" : "pos_encoding");
    attn_nn_positional_init_kind(&front->positions, builder, kind, hidden, attn_config_int(config, "max_len", 0),
                                 attn_config_real(config, "dropout", 0));
    attn_nn_pop(builder);
    front->positions.offset = attn_config_int(config, "position_offset", 0);
    int64_t segments = attn_config_int(config, "segments", 0);
    if (segments > 0)
        attn__nn_embedding_named(&front->segments, builder, "segment_embedding", segments, hidden, 1);
    attn__transformer_norm_build(&front->norm, builder, config, "embedding_norm", "embedding_norm");
}

static bool segments_fit(attn_tape *tape, const attn_tensor *x, const attn_tensor *segments)
{
    char found[ATTN__SHAPE_TEXT];
    int64_t batch = attn_tensor_length(x, 0), steps = attn_tensor_length(x, 1);
    if (attn_tensor_rank(segments) == 2 && attn_tensor_length(segments, 0) == batch &&
        attn_tensor_length(segments, 1) == steps)
        return true;
    attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE,
               "segments: expected one for each token, [%lld,%lld], found %s", (long long)batch, (long long)steps,
               attn__shape_text(segments, found));
    return false;
}

/* Adds the embedding of segments to x. If there are no segment ids, every token belongs to the first segment. */
static attn_tensor *add_segments(const attn_nn_embedding *layer, attn_tape *tape, attn_tensor *x,
                                 const attn_tensor *segments)
{
    if (!layer->weight || !x)
        return x;
    if (segments && !segments_fit(tape, x, segments))
        return NULL;
    int64_t hidden = attn_tensor_length(layer->weight, 1);
    attn_tensor *rows = segments ? attn_nn_embedding_forward(layer, tape, segments)
                                 : attn_reshape(tape, attn_slice(tape, layer->weight, 0, 0, 1), 1, &hidden);
    return attn_add(tape, x, rows);
}

attn_tensor *attn__transformer_front_segments(const attn__transformer_front *front, attn_tape *tape,
                                              const attn_tensor *tokens, const attn_tensor *segments, int64_t first)
{
    attn_tensor *x = attn_nn_positional_embed(&front->positions, &front->embedding, tape, tokens, first);
    return attn__transformer_norm(&front->norm, tape, add_segments(&front->segments, tape, x, segments));
}

attn_tensor *attn__transformer_front_forward(const attn__transformer_front *front, attn_tape *tape,
                                             const attn_tensor *tokens, int64_t first)
{
    return attn__transformer_front_segments(front, tape, tokens, NULL, first);
}

attn_nn_block_options attn__transformer_block_options(const attn_config *config, attn__half half, bool bias)
{
    return (attn_nn_block_options){.hidden = attn_config_int(config, "num_hiddens", 0),
                                   .ffn_hidden = attn__transformer_size(config, half, "ffn_num_hiddens"),
                                   .heads = attn__transformer_size(config, half, "num_heads"),
                                   .dropout = attn_config_real(config, "dropout", 0),
                                   .bias = bias,
                                   .pre_norm = attn__config_choice(config, "norm", attn__norm_choices) == 1,
                                   .activation =
                                       activations[attn__config_choice(config, "activation", attn__activation_choices)],
                                   .eps = attn_config_real(config, "eps", 0)};
}
