/* SPDX-License-Identifier: MIT */
#include "models/transformer_parts.h"

#include "nn/guided.h"
#include "tensor/tensor.h"

void attn__transformer_decoder_build(attn__transformer_decoder *decoder, attn_nn_builder *builder,
                                     const attn_config *config, const attn__decoder_options *o)
{
    attn_nn_block_options options = attn__transformer_block_options(config, ATTN__DECODER, o->bias);
    decoder->blocks = (int)attn__transformer_size(config, ATTN__DECODER, "num_blks");
    decoder->fill = attn_config_real(config, "mask_fill", 0);
    attn__transformer_front_build(&decoder->front, builder, config, o->vocabulary, o->shared);
    for (int i = 0; i < decoder->blocks; i++) {
        attn_nn_pushf(builder, "blks.block%d", i);
        attn_nn_decoder_block_init(&decoder->block[i], builder, &options);
        attn_nn_pop(builder);
    }
    attn__transformer_norm_build(&decoder->norm, builder, config, "decoder_norm", "norm");
    attn_nn_push(builder, "dense");
    if (o->tied) {
        attn_nn_initializer zeros = {.start = ATTN_INIT_ZEROS};
        decoder->dense = (attn_nn_linear){.weight = decoder->front.embedding.weight};
        if (decoder->dense.weight)
            decoder->dense.weight->tied = true;
        if (o->output_bias)
            decoder->dense.bias = attn_nn_parameter(builder, "bias", 1, &o->vocabulary, zeros);
    } else {
        attn_nn_linear_init(&decoder->dense, builder, options.hidden, o->vocabulary, o->output_bias);
    }
    if (decoder->dense.weight)
        decoder->dense.weight->table = true;
    attn_nn_pop(builder);
}

/* Embeds the target tokens. If all of them have position 0, each is embedded as a sequence of its own. */
static attn_tensor *embed(const attn__transformer_decoder *decoder, attn_tape *tape, const attn_tensor *tokens,
                          bool first_position)
{
    if (!tokens || !first_position)
        return attn__transformer_front_forward(&decoder->front, tape, tokens, 0);
    int64_t rows = attn_tensor_length(tokens, 0), steps = attn_tensor_length(tokens, 1);
    attn_tensor *alone = attn_tape_tensor(tape, ATTN_I32, 2, (int64_t[]){rows * steps, 1}, attn_tensor_data(tokens));
    attn_tensor *x = alone ? attn__transformer_front_forward(&decoder->front, tape, alone, 0) : NULL;
    return attn_reshape(tape, x, 3, (int64_t[]){rows, steps, -1});
}

attn_tensor *attn__transformer_decode(const attn__transformer_decoder *decoder, attn_tape *tape,
                                      const attn_tensor *tokens, attn_tensor *encoded, const attn_tensor *lens,
                                      const attn_seq2seq_options *options)
{
    attn_nn_mask own = {.causal = options->see_future ? ATTN_CAUSAL_NONE : ATTN_CAUSAL_TOP_LEFT, .fill = decoder->fill};
    attn_nn_mask cross = {.valid_lens = lens, .fill = decoder->fill};
    attn_tensor *x = embed(decoder, tape, tokens, options->first_position);
    bool maps = options->weights != NULL;
    for (int i = 0; i < decoder->blocks; i++) {
        const attn_nn_decoder_block *block = &decoder->block[i];
        attn_tensor *own_map = NULL, *cross_map = NULL;
        /* If `guided` is requested, the cross-attention weights of the last block are computed with gradients. */
        if (options->guided && i == decoder->blocks - 1) {
            x = attn__nn_decoder_block_guided(block, tape, x, encoded, &own, &cross, options->guided);
            attn__weights_add(options->weights, "cross", i, *options->guided);
            continue;
        }
        attn__block_begin(tape, maps);
        x = attn_nn_decoder_block_forward(block, tape, x, encoded, NULL, &own, &cross, maps ? &own_map : NULL,
                                          maps ? &cross_map : NULL);
        x = attn__block_end(tape, maps, x);
        attn__weights_add(options->weights, "decoder", i, own_map);
        attn__weights_add(options->weights, "cross", i, cross_map);
    }
    return attn_nn_linear_forward(&decoder->dense, tape, attn__transformer_norm(&decoder->norm, tape, x));
}

/* ------------------------------------------------------------------------------------------ by itself */

static const attn_setting keys[] = {
    ATTN__KEY_COUNT("vocab_size", NULL, "size of the vocabulary"),
    ATTN__KEYS_TRANSFORMER,
    ATTN__KEY_FLAG("use_bias", "false", "biases of the attention's projections"),
    ATTN__KEY_FLAG("decoder_norm", "false", "a norm behind the last block"),
    ATTN__KEY_FLAG("output_bias", "true", "a bias of the output layer"),
    ATTN__KEY_FLAG("tied", "false", "the output layer has the embedding's weights"),
};
static const attn_port inputs[] = {
    ATTN__PORT_IDS("tokens", "(b,t)", "ids below vocab_size"),
    ATTN__PORT("enc_outputs", "(b,s,num_hiddens)", "the encoder's output"),
    ATTN__PORT_LENS("(b)"),
};
static const attn_port outputs[] = {
    ATTN__PORT("logits", "(b,t,vocab_size)", ""),
    ATTN__PORT_OPTIONAL("self_weights", "(num_blks,b,h,t,t)", "weights of the self-attention"),
    ATTN__PORT_OPTIONAL("cross_weights", "(num_blks,b,h,t,s)", "weights of the attention to the encoder"),
};

static void build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    attn__decoder_options options = {.vocabulary = attn_config_int(config, "vocab_size", 0),
                                     .bias = attn_config_bool(config, "use_bias", false),
                                     .tied = attn_config_bool(config, "tied", false),
                                     .output_bias = attn_config_bool(config, "output_bias", true)};
    attn__transformer_decoder_build(self, builder, config, &options);
}

static void forward(const void *self, const attn__call *call)
{
    attn_named_list maps = {.context = attn_tape_context(call->tape)};
    attn_tensor *slot;
    bool own = attn__wanted(call, "self_weights", &slot) != NULL;
    bool cross = attn__wanted(call, "cross_weights", &slot) != NULL;
    attn_seq2seq_options options = {.weights = own || cross ? &maps : NULL};
    attn_tensor *tokens = attn__call_input(call, "tokens"), *encoded = attn__call_input(call, "enc_outputs");
    attn_tensor *lens = attn__call_input(call, "valid_lens");
    attn__call_output(call, "logits", attn__transformer_decode(self, call->tape, tokens, encoded, lens, &options));
    if (own)
        attn__call_output(call, "self_weights", attn__stack(call->tape, &maps, "decoder"));
    if (cross)
        attn__call_output(call, "cross_weights", attn__stack(call->tape, &maps, "cross"));
    attn_named_clear(&maps);
}

const attn__kind attn__kind_transformer_decoder = {
    .about = {.name = "transformer-decoder",
              .summary = "blocks of causal self-attention, attention to an encoder, feed-forward networks",
              .source = "Vaswani et al. 2017, arXiv:1706.03762; Dive into Deep Learning, 11.7",
              ATTN__PORTS(keys, inputs, outputs)},
    .size = sizeof(attn__transformer_decoder),
    .build = build,
    .forward = forward,
};
