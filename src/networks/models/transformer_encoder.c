/* SPDX-License-Identifier: MIT */
#include "models/transformer_parts.h"

#include "base/context.h"
#include "nn/block.h"
#include "nn/named.h"
#include "tensor/tape_state.h"

void attn__transformer_encoder_build(attn__transformer_encoder *encoder, attn_nn_builder *builder,
                                     const attn_config *config, int64_t vocabulary, bool bias)
{
    attn_nn_block_options options = attn__transformer_block_options(config, ATTN__ENCODER, bias);
    encoder->blocks = (int)attn__transformer_size(config, ATTN__ENCODER, "num_blks");
    encoder->fill = attn_config_real(config, "mask_fill", 0);
    attn__transformer_front_build(&encoder->front, builder, config, vocabulary, NULL);
    for (int i = 0; i < encoder->blocks; i++) {
        attn_nn_pushf(builder, "blks.block%d", i);
        attn_nn_encoder_block_init(&encoder->block[i], builder, &options);
        attn_nn_pop(builder);
    }
    attn__transformer_norm_build(&encoder->norm, builder, config, "encoder_norm", "norm");
}

attn_tensor *attn__transformer_encode(const attn__transformer_encoder *encoder, attn_tape *tape,
                                      const attn_tensor *tokens, const attn_tensor *lens, attn_named_list *weights)
{
    return attn__transformer_encode_segments(encoder, tape, tokens, NULL, lens, weights);
}

attn_tensor *attn__transformer_encode_segments(const attn__transformer_encoder *encoder, attn_tape *tape,
                                               const attn_tensor *tokens, const attn_tensor *segments,
                                               const attn_tensor *lens, attn_named_list *weights)
{
    attn_nn_mask mask = {.valid_lens = lens, .fill = encoder->fill};
    attn_tensor *x = attn__transformer_front_segments(&encoder->front, tape, tokens, segments, 0);
    for (int i = 0; i < encoder->blocks; i++) {
        attn_tensor *map = NULL;
        attn__block_begin(tape, weights != NULL);
        x = attn_nn_encoder_block_forward(&encoder->block[i], tape, x, NULL, &mask, weights ? &map : NULL);
        x = attn__block_end(tape, weights != NULL, x);
        attn__weights_add(weights, "encoder", i, map);
    }
    return attn__transformer_norm(&encoder->norm, tape, x);
}

/* ------------------------------------------------------------------------------------------ by itself */

/* An encoder with the two heads of Devlin et al. 2019 (arXiv:1810.04805). One head reads whole sequences, and the
 * other predicts masked tokens. */
typedef struct encoder_model {
    attn__transformer_encoder encoder;
    attn_nn_linear pooler, classifier, dense; /* layers of the two heads; a layer whose weight is NULL is skipped */
    attn_nn_layer_norm norm;
    attn_tensor *bias;
    attn_activation activation;
} encoder_model;

#define SIZE_KEY(name, doc)                                                                                            \
    {                                                                                                                  \
        name, ATTN_CONFIG_TYPE_INT, "0", 0, 1 << 30, NULL, doc                                                         \
    }
static const attn_setting keys[] = {
    ATTN__KEY_COUNT("vocab_size", NULL, "size of the vocabulary"),
    ATTN__KEYS_TRANSFORMER,
    ATTN__KEY_FLAG("use_bias", "false", "biases of the attention's projections"),
    ATTN__KEY_FLAG("encoder_norm", "false", "a norm behind the last block"),
    SIZE_KEY("segments", "kinds of segments, whose embedding is added to each token's; 0: none"),
    ATTN__KEY_FLAG("pooler", "false", "a pooler: a linear layer with tanh behind the first token's output"),
    SIZE_KEY("num_classes", "classes of a linear layer behind the pooler; 0: no such layer"),
    ATTN__KEY_FLAG("masked_head", "false", "a head that predicts masked tokens: dense, norm, the embedding's table"),
};
static const attn_port inputs[] = {ATTN__PORT_IDS("tokens", "(b,t)", "ids below vocab_size"),
                                   ATTN__PORT_LENS("(b) or (b,t)"),
                                   {"segments", "(b,t)", true, true, "ids below segments; left out: the first"}};
static const attn_port outputs[] = {
    ATTN__PORT("out", "(b,t,num_hiddens)", ""),
    ATTN__PORT_OPTIONAL("weights", "(num_blks,b,h,t,t)", "attention weights of every block"),
    ATTN__PORT_OPTIONAL("pooled", "(b,num_hiddens)", "the first token's, behind the pooler where there is one"),
    ATTN__PORT_OPTIONAL("logits", "(b,num_classes)", "of the whole sequence"),
    ATTN__PORT_OPTIONAL("token_logits", "(b,t,vocab_size)", "of the masked head"),
};

static void masked_head_build(encoder_model *m, attn_nn_builder *builder, const attn_config *config)
{
    int64_t hidden = attn_config_int(config, "num_hiddens", 0), vocabulary = attn_config_int(config, "vocab_size", 0);
    attn_nn_push(builder, "masked_head");
    attn__nn_linear_named(&m->dense, builder, "dense", hidden, hidden, true);
    attn__transformer_norm_build(&m->norm, builder, config, "masked_head", "norm");
    m->bias = attn_nn_parameter(builder, "bias", 1, &vocabulary, (attn_nn_initializer){.start = ATTN_INIT_ZEROS});
    attn_nn_pop(builder);
}

static void build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    encoder_model *m = self;
    int64_t hidden = attn_config_int(config, "num_hiddens", 0), classes = attn_config_int(config, "num_classes", 0);
    attn__transformer_encoder_build(&m->encoder, builder, config, attn_config_int(config, "vocab_size", 0),
                                    attn_config_bool(config, "use_bias", false));
    m->activation = attn__transformer_block_options(config, ATTN__ENCODER, false).activation;
    if (attn_config_bool(config, "pooler", false))
        attn__nn_linear_named(&m->pooler, builder, "pooler.dense", hidden, hidden, true);
    if (classes > 0)
        attn__nn_linear_named(&m->classifier, builder, "classifier", hidden, classes, true);
    if (attn_config_bool(config, "masked_head", false))
        masked_head_build(m, builder, config);
}

/* Returns the output of the first token [B,D], after the pooler if there is one. */
static attn_tensor *pool(const encoder_model *m, attn_tape *tape, attn_tensor *out)
{
    if (!out)
        return NULL;
    attn_tensor *first = attn_slice(tape, out, 1, 0, 1);
    first = attn_reshape(tape, first, 2, (int64_t[]){attn_tensor_length(out, 0), attn_tensor_length(out, 2)});
    return m->pooler.weight ? attn_activate(tape, attn_nn_linear_forward(&m->pooler, tape, first), ATTN_ACTIVATION_TANH)
                            : first;
}

static attn_tensor *guess_tokens(const encoder_model *m, attn_tape *tape, attn_tensor *out)
{
    const attn_nn_ffn head = {.dense1 = m->dense, .activation = m->activation};
    attn_tensor *h = attn__transformer_norm(&m->norm, tape, attn__nn_ffn_hidden(&head, tape, out));
    return attn_linear(tape, h, m->encoder.front.embedding.weight, m->bias, ATTN_ACTIVATION_IDENTITY);
}

static void heads_forward(const encoder_model *m, const attn__call *call, attn_tensor *out)
{
    attn_tensor *slot;
    bool pooled = attn__wanted(call, "pooled", &slot) != NULL, logits = attn__wanted(call, "logits", &slot) != NULL;
    if (logits && !m->classifier.weight) {
        attn__fail(attn_tape_context(call->tape), ATTN_ERROR_ARGUMENT,
                   "transformer-encoder: logits are requested, but num_classes is 0");
        return;
    }
    attn_tensor *first = pooled || logits ? pool(m, call->tape, out) : NULL;
    if (pooled)
        attn__call_output(call, "pooled", first);
    if (logits)
        attn__call_output(call, "logits", attn_nn_linear_forward(&m->classifier, call->tape, first));
    if (attn__wanted(call, "token_logits", &slot)) {
        if (m->dense.weight) {
            attn__call_output(call, "token_logits", guess_tokens(m, call->tape, out));
        } else {
            attn__fail(attn_tape_context(call->tape), ATTN_ERROR_ARGUMENT,
                       "transformer-encoder: token_logits are requested, but masked_head is false");
        }
    }
}

static void forward(const void *self, const attn__call *call)
{
    const encoder_model *m = self;
    attn_named_list maps = {.context = attn_tape_context(call->tape)};
    attn_tensor *tokens = attn__call_input(call, "tokens"), *lens = attn__call_input(call, "valid_lens"), *slot;
    attn_tensor *segments = attn__call_input(call, "segments");
    bool wanted = attn__wanted(call, "weights", &slot) != NULL;
    if (segments && !m->encoder.front.segments.weight) {
        attn__fail(attn_tape_context(call->tape), ATTN_ERROR_ARGUMENT,
                   "transformer-encoder: segments are given, but the model has none");
        return;
    }
    attn_tensor *out =
        attn__transformer_encode_segments(&m->encoder, call->tape, tokens, segments, lens, wanted ? &maps : NULL);
    attn__call_output(call, "out", out);
    if (wanted)
        attn__call_output(call, "weights", attn__stack(call->tape, &maps, "encoder"));
    heads_forward(m, call, out);
    attn_named_clear(&maps);
}

const attn__kind attn__kind_transformer_encoder = {
    .about =
        {.name = "transformer-encoder",
         .summary =
             "embedding, positions, blocks of self-attention and feed-forward networks; with the settings of BERT, "
             "BERT",
         .source = "Vaswani et al. 2017, arXiv:1706.03762; Dive into Deep Learning, 11.7",
         ATTN__PORTS(keys, inputs, outputs)},
    .size = sizeof(encoder_model),
    .build = build,
    .forward = forward,
};
