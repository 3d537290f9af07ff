/* SPDX-License-Identifier: MIT
 *
 * The Transformer's encoder. */
#include "models/transformer_parts.h"

void attn__transformer_encoder_build(attn__transformer_encoder *encoder, attn_nn_builder *builder,
                                     const attn_config *config, int64_t vocabulary, bool bias)
{
    attn_nn_block_options options = attn__transformer_block_options(config, ATTN__ENCODER, bias);
    encoder->blocks = (int)attn__transformer_size(config, ATTN__ENCODER, "num_blks");
    encoder->fill = attn_config_real(config, "mask_fill", 0);
    attn__transformer_front_build(&encoder->front, builder, config, vocabulary, NULL);
    for (int i = 0; i < encoder->blocks; i++) {
        attn_nn_push(builder, "blks.block%d", i);
        attn_nn_encoder_block_init(&encoder->block[i], builder, &options);
        attn_nn_pop(builder);
    }
    attn__transformer_norm_build(&encoder->norm, builder, config, "encoder_norm", "norm");
}

attn_tensor *attn__transformer_encode(const attn__transformer_encoder *encoder, attn_tape *tape,
                                      const attn_tensor *tokens, const attn_tensor *lens, attn_named_list *weights)
{
    attn_nn_mask mask = {.valid_lens = lens, .fill = encoder->fill};
    attn_tensor *x = attn__transformer_front_forward(&encoder->front, tape, tokens, 0);
    for (int i = 0; i < encoder->blocks; i++) {
        attn_tensor *map = NULL;
        if (weights) {
            x = attn_nn_encoder_block_forward(&encoder->block[i], tape, x, &mask, &map);
            attn__weights_add(weights, "encoder", i, map);
            continue;
        }
        attn_scope_begin(tape); /* which would free the maps too, where they are wanted */
        x = attn_scope_end(tape, attn_nn_encoder_block_forward(&encoder->block[i], tape, x, &mask, NULL));
    }
    return attn__transformer_norm(&encoder->norm, tape, x);
}

/* ------------------------------------------------------------------------------------------ by itself */

static const attn_key keys[] = {
    ATTN__KEY_COUNT("vocab_size", NULL, "tokens there are"),
    ATTN__KEYS_TRANSFORMER,
    ATTN__KEY_FLAG("use_bias", "false", "biases of the attention's projections"),
    ATTN__KEY_FLAG("encoder_norm", "false", "a norm behind the last block"),
};
static const attn_port inputs[] = {ATTN__PORT_IDS("tokens", "(b,t)", "ids below vocab_size"),
                                   ATTN__PORT_LENS("(b) or (b,t)")};
static const attn_port outputs[] = {
    ATTN__PORT("out", "(b,t,num_hiddens)", ""),
    ATTN__PORT_OPTIONAL("weights", "(num_blks,b,h,t,t)", "attention weights of every block"),
};

static void build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    attn__transformer_encoder_build(self, builder, config, attn_config_int(config, "vocab_size", 0),
                                    attn_config_bool(config, "use_bias", false));
}

static void forward(const void *self, const attn__call *call)
{
    attn_named_list maps = {.context = attn_tape_context(call->tape)};
    attn_tensor *tokens = attn__input(call, "tokens"), *lens = attn__input(call, "valid_lens"), *slot;
    bool wanted = attn__wanted(call, "weights", &slot) != NULL;
    attn__output(call, "out", attn__transformer_encode(self, call->tape, tokens, lens, wanted ? &maps : NULL));
    if (wanted) {
        attn__output(call, "weights", attn__stack(call->tape, &maps, "encoder"));
    }
    attn_named_clear(&maps);
}

const attn__kind attn__kind_transformer_encoder = {
    .about = {.name = "transformer-encoder",
              .summary = "embedding, positions, blocks of self-attention and feed-forward networks",
              .source = "Vaswani et al. 2017, arXiv:1706.03762; Dive into Deep Learning, 11.7",
              ATTN__PORTS(keys, inputs, outputs)},
    .size = sizeof(attn__transformer_encoder),
    .build = build,
    .forward = forward,
};
