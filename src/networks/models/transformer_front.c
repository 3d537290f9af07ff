/* SPDX-License-Identifier: MIT
 *
 * Implements the input layers of the Transformer's encoder and decoder, and reads the settings that the blocks of both
 * share.
 */
#include "models/transformer_parts.h"

#include "base/context.h"
#include "nn/named.h"
#include "tensor/number.h"
#include "tensor/tensor.h"

#include <math.h>
#include <stdio.h>

const char *const attn__norm_choices[] = {"post", "pre", NULL};
const char *const attn__norm_kinds[] = {"layer", "rms", NULL};
const char *const attn__rotary_choices[] = {"none", "halves", "pairs", NULL};
const char *const attn__activation_choices[] = {"relu", "gelu", "gelu_tanh", "gelu_sigmoid", "silu", "tanh", NULL};
static const attn_activation activations[] = {ATTN_ACTIVATION_RELU,      ATTN_ACTIVATION_GELU_ERF,
                                              ATTN_ACTIVATION_GELU_TANH, ATTN_ACTIVATION_GELU_SIGMOID,
                                              ATTN_ACTIVATION_SILU,      ATTN_ACTIVATION_TANH};
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
    attn__transformer_norm_make(norm, builder, config, name);
}

void attn__transformer_norm_make(attn_nn_layer_norm *norm, attn_nn_builder *builder, const attn_config *config,
                                 const char *name)
{
    attn__nn_norm_options how = {.eps = attn_config_real(config, "eps", 0),
                                 .rms = attn__config_choice(config, "norm_kind", attn__norm_kinds) == 1,
                                 .plain = !attn_config_bool(config, "norm_bias", true)};
    attn__nn_norm_named(norm, builder, name, attn_config_int(config, "num_hiddens", 0), &how);
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
    front->masked_token = attn_config_int(config, "masked_token", -1);
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

/* If there are no segment ids, every token belongs to the first segment. */
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

/* Returns the factor [B,T,1] of each token's embedding in ESM's token dropout: 0 for masked and padded tokens, else
 * (1 - 0.15 * 0.8) / (1 - the share of masked tokens in the text). */
static attn_tensor *masked_factors(const attn__transformer_front *front, attn_tape *tape,
                                   const attn__encoder_input *input)
{
    const double trained = 0.15 * 0.8;
    int64_t batch = attn_tensor_length(input->tokens, 0), steps = attn_tensor_length(input->tokens, 1);
    int64_t texts = input->packed ? attn_tensor_size(input->packed->offsets) - 1 : batch;
    const int32_t *ids = attn_tensor_data(input->tokens), *lens = input->lens ? attn_tensor_data(input->lens) : NULL;
    const int32_t *offsets = input->packed ? attn_tensor_data(input->packed->offsets) : NULL;
    attn_tensor *factors =
        attn_tape_tensor(tape, attn_tensor_dtype(front->embedding.weight), 3, (int64_t[]){batch, steps, 1}, NULL);
    for (int64_t text = 0; factors && text < texts; text++) {
        int64_t begin = offsets ? offsets[text] : text * steps, n = offsets ? offsets[text + 1] - begin : steps;
        n = lens && lens[text] < n ? lens[text] : n;
        int64_t masked = 0;
        for (int64_t i = begin; i < begin + n; i++)
            masked += ids[i] == front->masked_token;
        for (int64_t i = begin; i < begin + n; i++)
            attn__set_number(factors, i,
                             ids[i] == front->masked_token ? 0 : (1 - trained) / (1 - (double)masked / (double)n));
    }
    return factors;
}

static attn_tensor *drop_masked(const attn__transformer_front *front, attn_tape *tape, attn_tensor *x,
                                const attn__encoder_input *input)
{
    if (front->masked_token < 0 || !x)
        return x;
    if (input->lens && attn_tensor_rank(input->lens) != 1) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE,
                   "valid_lens: with masked_token, expected one length for each text, found %d axes",
                   attn_tensor_rank(input->lens));
        return NULL;
    }
    return attn_mul(tape, x, masked_factors(front, tape, input));
}

/* Embeds packed tokens, each at its position in its text. */
static attn_tensor *embed_packed(const attn__transformer_front *front, attn_tape *tape,
                                 const attn__encoder_input *input)
{
    const attn_nn_positional *positions = &front->positions;
    const attn_nn_packed *packed = input->packed;
    attn_tensor *x = attn_nn_embedding_forward(&front->embedding, tape, input->tokens);
    if (!x || !positions->table)
        return attn_dropout(tape, x, positions->dropout);
    int64_t most = attn_tensor_length(positions->table, 0) - positions->offset;
    if (packed->longest > most) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE,
                   "a text has %lld tokens, but the model has positions for at most %lld", (long long)packed->longest,
                   (long long)most);
        return NULL;
    }
    attn_tensor *rows = attn_slice(tape, positions->table, 0, positions->offset, positions->offset + packed->longest);
    return attn_dropout(tape, attn_add(tape, x, attn_embedding(tape, rows, packed->positions, 1, NULL, 0)),
                        positions->dropout);
}

attn_tensor *attn__transformer_front_encode(const attn__transformer_front *front, attn_tape *tape,
                                            const attn__encoder_input *input)
{
    attn_tensor *x = input->packed
                         ? embed_packed(front, tape, input)
                         : attn_nn_positional_embed(&front->positions, &front->embedding, tape, input->tokens, 0);
    x = drop_masked(front, tape, add_segments(&front->segments, tape, x, input->segments), input);
    return attn__transformer_norm(&front->norm, tape, x);
}

attn_tensor *attn__transformer_front_forward(const attn__transformer_front *front, attn_tape *tape,
                                             const attn_tensor *tokens, int64_t first)
{
    attn_tensor *x = attn_nn_positional_embed(&front->positions, &front->embedding, tape, tokens, first);
    return attn__transformer_norm(&front->norm, tape, add_segments(&front->segments, tape, x, NULL));
}

attn_activation attn__transformer_activation(const attn_config *config, const char *key)
{
    return activations[attn__config_choice(config, key, attn__activation_choices)];
}

attn_nn_block_options attn__transformer_block_options(const attn_config *config, attn__half half, bool bias)
{
    return (attn_nn_block_options){.hidden = attn_config_int(config, "num_hiddens", 0),
                                   .ffn_hidden = attn__transformer_size(config, half, "ffn_num_hiddens"),
                                   .heads = attn__transformer_size(config, half, "num_heads"),
                                   .dropout = attn_config_real(config, "dropout", 0),
                                   .bias = bias,
                                   .pre_norm = attn__config_choice(config, "norm", attn__norm_choices) == 1,
                                   .activation = attn__transformer_activation(config, "activation"),
                                   .eps = attn_config_real(config, "eps", 0),
                                   .rms = attn__config_choice(config, "norm_kind", attn__norm_kinds) == 1,
                                   .norm_plain = !attn_config_bool(config, "norm_bias", true),
                                   .ffn_plain = !attn_config_bool(config, "ffn_bias", true),
                                   .gated = attn_config_bool(config, "gated", false)};
}
