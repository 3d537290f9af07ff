/* SPDX-License-Identifier: MIT
 *
 * The Transformer's encoder as an architecture of its own, with the heads of published encoders. One head reads whole
 * sequences, one predicts masked tokens (Devlin et al. 2019, arXiv:1810.04805), and one predicts contacts of proteins
 * (Rao et al. 2020, doi:10.1101/2020.12.15.422761). */
#include "models/transformer_parts.h"

#include "base/context.h"
#include "nn/block.h"
#include "nn/named.h"
#include "tensor/number.h"
#include "tensor/tape_state.h"
#include "tensor/tensor.h"

typedef struct encoder_model {
    attn__transformer_encoder encoder;
    attn_nn_linear pooler, classifier, dense; /* layers of the heads; a layer whose weight is NULL is skipped */
    attn_nn_linear regression;                /* of contacts */
    attn_nn_layer_norm norm, pooler_norm;
    attn_tensor *bias;
    attn_activation activation, pooler_activation;
    bool mean; /* true: the pooler reads the mean of all tokens instead of the first token */
} encoder_model;

static const char *const pooled_choices[] = {"first", "mean", NULL};

#define CHOICE_KEY(name, otherwise, choices, doc)                                                                      \
    {                                                                                                                  \
        name, ATTN_CONFIG_TYPE_TEXT, otherwise, 0, 0, choices, doc                                                     \
    }
#define SIZE_KEY(name, otherwise, least, doc)                                                                          \
    {                                                                                                                  \
        name, ATTN_CONFIG_TYPE_INT, otherwise, least, 1 << 30, NULL, doc                                               \
    }
static const attn_setting keys[] = {
    ATTN__KEY_COUNT("vocab_size", NULL, "tokens there are"),
    ATTN__KEYS_TRANSFORMER,
    ATTN__KEY_FLAG("use_bias", "false", "biases of the attention's projections"),
    ATTN__KEY_FLAG("encoder_norm", "false", "a norm behind the last block"),
    SIZE_KEY("segments", "0", 0, "kinds of segments, whose embedding is added to each token's; 0: none"),
    ATTN__KEY_FLAG("pooler", "false", "a layer with an activation behind the first token's output"),
    SIZE_KEY("num_classes", "0", 0, "classes of the layer behind that; 0: none"),
    ATTN__KEY_FLAG("masked_head", "false",
                   "a head that says which tokens there were: dense, norm, the embedding's table"),
    CHOICE_KEY("norm_kind", "layer", attn__norm_kinds, "layer norms, or rms: norms by the root mean square"),
    ATTN__KEY_FLAG("norm_bias", "true", "biases of the norms"),
    ATTN__KEY_FLAG("first_norm", "true", "with norm=pre, a norm before the first block's attention"),
    ATTN__KEY_FLAG("ffn_bias", "true", "biases of the feed-forward network"),
    ATTN__KEY_FLAG("gated", "false", "a second layer of the feed-forward network, which multiplies the activation"),
    CHOICE_KEY("rotary", "none", attn__rotary_choices,
               "rotary positions of queries and keys: a channel turns with the one half a head away, or with the next"),
    {"rotary_base", ATTN_CONFIG_TYPE_REAL, "10000", 1, 1e12, NULL, "angle j is position / base^(2 j / rotary_dims)"},
    SIZE_KEY("rotary_dims", "0", 0, "channels of a head that turn; 0: all"),
    {"rotary_scale", ATTN_CONFIG_TYPE_REAL, "1", 1e-6, 1e6, NULL, "positions are divided by it"},
    SIZE_KEY("local_window", "0", 0, "tokens on each side that local blocks attend to; 0: all blocks are global"),
    SIZE_KEY("global_every", "1", 1, "every so many blocks, from the first on, one is global"),
    {"local_rotary_base", ATTN_CONFIG_TYPE_REAL, "0", 0, 1e12, NULL, "rotary_base of local blocks; 0: the same"},
    SIZE_KEY("masked_token", "-1", -1,
             "ESM's token dropout: id of <mask>, whose embedding is 0; others are scaled; -1: none"),
    CHOICE_KEY("pooler_activation", "tanh", attn__activation_choices, "of the pooler"),
    ATTN__KEY_FLAG("pooler_norm", "false", "a norm behind the pooler"),
    CHOICE_KEY("pooled_from", "first", pooled_choices, "what the pooler reads: the first token, or the mean of all"),
    ATTN__KEY_FLAG("head_bias", "true", "biases of the dense layers of pooler and masked head"),
    ATTN__KEY_FLAG("contacts", "false", "a regression of a protein's contacts from all attention weights"),
};
static const attn_port inputs[] = {
    ATTN__PORT_IDS("tokens", "(b,t)", "ids below vocab_size"),
    ATTN__PORT_LENS("(b) or (b,t)"),
    {"segments", "(b,t)", true, true, "ids below segments; left out: the first"},
    {"offsets", "(s+1)", true, true,
     "tokens (1,t) are s texts without padding, text i from offsets i to i + 1; pooled and logits then have s rows"}};
static const attn_port outputs[] = {
    ATTN__PORT("out", "(b,t,num_hiddens)", ""),
    ATTN__PORT_OPTIONAL("weights", "(num_blks,b,h,t,t)", "attention weights of every block"),
    ATTN__PORT_OPTIONAL("pooled", "(b,num_hiddens)", "the first token's, behind the pooler where there is one"),
    ATTN__PORT_OPTIONAL("logits", "(b,num_classes)", "of the whole sequence"),
    ATTN__PORT_OPTIONAL("token_logits", "(b,t,vocab_size)", "of the masked head"),
    ATTN__PORT_OPTIONAL("contacts", "(b,t-2,t-2)",
                        "probabilities of pairs of residues; the first and last token are none"),
};

/* ------------------------------------------------------------------------------------------------ building */

static void masked_head_build(encoder_model *m, attn_nn_builder *builder, const attn_config *config)
{
    int64_t hidden = attn_config_int(config, "num_hiddens", 0), vocabulary = attn_config_int(config, "vocab_size", 0);
    attn_nn_push(builder, "masked_head");
    attn__nn_linear_named(&m->dense, builder, "dense", hidden, hidden, attn_config_bool(config, "head_bias", true));
    attn__transformer_norm_make(&m->norm, builder, config, "norm");
    m->bias = attn_nn_parameter(builder, "bias", 1, &vocabulary, (attn_nn_initializer){.start = ATTN_INIT_ZEROS});
    attn_nn_pop(builder);
}

/* The regression is no linear layer, because its weights are read one by one and must not be packed. */
static void regression_build(encoder_model *m, attn_nn_builder *builder, int64_t maps)
{
    attn_nn_initializer zeros = {.start = ATTN_INIT_ZEROS};
    attn_nn_push(builder, "contact_head");
    attn_nn_push(builder, "regression");
    m->regression.weight = attn_nn_parameter(builder, "weight", 2, (int64_t[]){1, maps}, zeros);
    m->regression.bias = attn_nn_parameter(builder, "bias", 1, (int64_t[]){1}, zeros);
    attn_nn_pop(builder);
    attn_nn_pop(builder);
}

static void build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    encoder_model *m = self;
    int64_t hidden = attn_config_int(config, "num_hiddens", 0), classes = attn_config_int(config, "num_classes", 0);
    attn__transformer_encoder_build(&m->encoder, builder, config, attn_config_int(config, "vocab_size", 0),
                                    attn_config_bool(config, "use_bias", false));
    m->activation = attn__transformer_activation(config, "activation");
    m->pooler_activation = attn__transformer_activation(config, "pooler_activation");
    m->mean = attn__config_choice(config, "pooled_from", pooled_choices) == 1;
    if (attn_config_bool(config, "pooler", false)) {
        attn__nn_linear_named(&m->pooler, builder, "pooler.dense", hidden, hidden,
                              attn_config_bool(config, "head_bias", true));
        if (attn_config_bool(config, "pooler_norm", false))
            attn__transformer_norm_make(&m->pooler_norm, builder, config, "pooler.norm");
    }
    if (classes > 0)
        attn__nn_linear_named(&m->classifier, builder, "classifier", hidden, classes, true);
    if (attn_config_bool(config, "masked_head", false))
        masked_head_build(m, builder, config);
    if (attn_config_bool(config, "contacts", false))
        regression_build(m, builder, attn_config_int(config, "num_blks", 0) * attn_config_int(config, "num_heads", 0));
}

/* ------------------------------------------------------------------------------------------------ packed texts */

/* Checks the offsets of packed texts and finds the position of each token. Returns false if they do not fit; an error
 * is then recorded. */
static bool unpack(attn_nn_packed *packed, attn_tape *tape, const attn__encoder_input *input,
                   const attn_tensor *offsets)
{
    attn_context *context = attn_tape_context(tape);
    int64_t n = attn_tensor_length(input->tokens, 1), texts = attn_tensor_size(offsets) - 1;
    const int32_t *at = attn_tensor_data(offsets);
    char found[ATTN__SHAPE_TEXT];
    if (input->lens) {
        attn__fail(context, ATTN_ERROR_SHAPE, "offsets and valid_lens cannot be used together");
        return false;
    }
    if (attn_tensor_rank(input->tokens) != 2 || attn_tensor_length(input->tokens, 0) != 1) {
        attn__fail(context, ATTN_ERROR_SHAPE, "tokens: with offsets, expected [1,t], found %s",
                   attn__shape_text(input->tokens, found));
        return false;
    }
    if (texts < 1) {
        attn__fail(context, ATTN_ERROR_SHAPE, "offsets: expected at least 2 numbers, found %lld", (long long)texts + 1);
        return false;
    }
    if (at[0] != 0 || at[texts] != n) {
        attn__fail(context, ATTN_ERROR_SHAPE,
                   "offsets: the first is %d and the last %d; expected 0 and %lld, the number of tokens", (int)at[0],
                   (int)at[texts], (long long)n);
        return false;
    }
    for (int64_t i = 0; i < texts; i++) {
        if (at[i] >= at[i + 1]) {
            attn__fail(context, ATTN_ERROR_SHAPE, "offsets[%lld] is %d; it must be above the offset before, %d",
                       (long long)i + 1, (int)at[i + 1], (int)at[i]);
            return false;
        }
    }
    attn_tensor *positions = attn_tape_tensor(tape, ATTN_I32, 2, (int64_t[]){1, n}, NULL);
    if (!positions)
        return false;
    *packed = (attn_nn_packed){.offsets = offsets, .positions = positions};
    for (int64_t i = 0; i < texts; i++) {
        int64_t length = at[i + 1] - at[i];
        packed->longest = length > packed->longest ? length : packed->longest;
        for (int64_t t = 0; t < length; t++)
            ((int32_t *)attn_tensor_data(positions))[at[i] + t] = (int32_t)t;
    }
    return true;
}

/* ------------------------------------------------------------------------------------------------ heads */

/* Returns the weights [B,1,T] (packed texts: [S,N]) whose product with the tokens is the mean of each text. */
static attn_tensor *mean_weights(attn_tape *tape, const attn__encoder_input *input, const attn_tensor *out)
{
    int64_t batch = attn_tensor_length(out, 0), steps = attn_tensor_length(out, 1);
    const int32_t *lens = input->lens ? attn_tensor_data(input->lens) : NULL;
    const int32_t *offsets = input->packed ? attn_tensor_data(input->packed->offsets) : NULL;
    int64_t texts = offsets ? attn_tensor_size(input->packed->offsets) - 1 : batch;
    attn_tensor *weights = offsets
                               ? attn_tape_tensor(tape, attn_tensor_dtype(out), 2, (int64_t[]){texts, steps}, NULL)
                               : attn_tape_tensor(tape, attn_tensor_dtype(out), 3, (int64_t[]){batch, 1, steps}, NULL);
    for (int64_t i = 0; weights && i < texts; i++) {
        int64_t begin = offsets ? offsets[i] : 0, n = offsets ? offsets[i + 1] - begin : steps;
        n = lens && lens[i] < n ? lens[i] : n;
        for (int64_t t = begin; t < begin + n; t++)
            attn__set_number(weights, i * steps + t, 1 / (double)n);
    }
    return weights;
}

/* Returns what the pooler reads, [B,D] or for packed texts [S,D]: the first token of each text, or the mean. */
static attn_tensor *pooler_input(const encoder_model *m, attn_tape *tape, const attn__encoder_input *input,
                                 attn_tensor *out)
{
    int64_t batch = attn_tensor_length(out, 0), steps = attn_tensor_length(out, 1), dim = attn_tensor_length(out, 2);
    if (m->mean && input->lens && attn_tensor_rank(input->lens) != 1) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE,
                   "valid_lens: with pooled_from=mean, expected one length for each text, found %d axes",
                   attn_tensor_rank(input->lens));
        return NULL;
    }
    if (input->packed) {
        int64_t texts = attn_tensor_size(input->packed->offsets) - 1;
        attn_tensor *rows = attn_reshape(tape, out, 2, (int64_t[]){steps, dim});
        attn_tensor *first = attn_tape_tensor(tape, ATTN_I32, 1, &texts, attn_tensor_data(input->packed->offsets));
        return m->mean ? attn_matmul(tape, mean_weights(tape, input, out), rows, false, false)
                       : attn_index_select(tape, rows, first);
    }
    attn_tensor *x =
        m->mean ? attn_matmul(tape, mean_weights(tape, input, out), out, false, false) : attn_slice(tape, out, 1, 0, 1);
    return attn_reshape(tape, x, 2, (int64_t[]){batch, dim});
}

static attn_tensor *pool(const encoder_model *m, attn_tape *tape, const attn__encoder_input *input, attn_tensor *out)
{
    attn_tensor *x = out ? pooler_input(m, tape, input, out) : NULL;
    if (!x || !m->pooler.weight)
        return x;
    x = attn_linear(tape, x, m->pooler.weight, m->pooler.bias, m->pooler_activation);
    return attn__transformer_norm(&m->pooler_norm, tape, x);
}

static attn_tensor *guess_tokens(const encoder_model *m, attn_tape *tape, attn_tensor *out)
{
    const attn_nn_ffn head = {.dense1 = m->dense, .activation = m->activation};
    attn_tensor *h = attn__transformer_norm(&m->norm, tape, attn__nn_ffn_hidden(&head, tape, out));
    return attn_linear(tape, h, m->encoder.front.embedding.weight, m->bias, ATTN_ACTIVATION_IDENTITY);
}

static void heads_forward(const encoder_model *m, const attn__call *call, const attn__encoder_input *input,
                          attn_tensor *out)
{
    attn_tensor *slot;
    bool pooled = attn__wanted(call, "pooled", &slot) != NULL, logits = attn__wanted(call, "logits", &slot) != NULL;
    attn_tensor *first = pooled || logits ? pool(m, call->tape, input, out) : NULL;
    if (pooled)
        attn__call_output(call, "pooled", first);
    if (logits)
        attn__call_output(call, "logits", attn_nn_linear_forward(&m->classifier, call->tape, first));
    if (attn__wanted(call, "token_logits", &slot))
        attn__call_output(call, "token_logits", guess_tokens(m, call->tape, out));
}

/* ------------------------------------------------------------------------------------------------ a run */

static bool has_heads(const encoder_model *m, const attn__call *call, bool packed)
{
    attn_tensor *slot;
    bool contacts = attn__wanted(call, "contacts", &slot) != NULL;
    const char *missing =
        attn__wanted(call, "logits", &slot) && !m->classifier.weight ? "num_classes is 0, so the model has no logits"
        : attn__wanted(call, "token_logits", &slot) && !m->dense.weight
            ? "masked_head is false, so the model has no token_logits"
        : contacts && !m->regression.weight ? "the setting contacts is false, so the model has no contacts"
        : packed && (contacts || attn__wanted(call, "weights", &slot))
            ? "weights and contacts cannot be computed for packed texts; leave out offsets"
            : NULL;
    if (missing)
        attn__fail(attn_tape_context(call->tape), ATTN_ERROR_ARGUMENT, "transformer-encoder: %s", missing);
    return !missing;
}

/* Prepares the sums of the contacts' regression. Returns false if an error is recorded. */
static bool contacts_begin(const encoder_model *m, const attn__call *call, const attn__encoder_input *input,
                           attn__encoder_maps *maps)
{
    int64_t batch = attn_tensor_length(input->tokens, 0), steps = attn_tensor_length(input->tokens, 1);
    int64_t places = steps > 2 ? steps - 2 : 0;
    if (input->lens && attn_tensor_rank(input->lens) != 1) {
        attn__fail(attn_tape_context(call->tape), ATTN_ERROR_SHAPE,
                   "valid_lens: with contacts, expected one length for each text, found %d axes",
                   attn_tensor_rank(input->lens));
        return false;
    }
    maps->regression = (attn__contact_regression){m->regression.weight, m->regression.bias};
    maps->contacts = attn_tape_tensor(call->tape, attn_tensor_dtype(m->regression.weight), 3,
                                      (int64_t[]){batch, places, places}, NULL);
    maps->residues = attn_tape_tensor(call->tape, ATTN_I32, 1, &batch, NULL);
    for (int64_t b = 0; maps->contacts && maps->residues && b < batch; b++) {
        int64_t n = input->lens ? ((const int32_t *)attn_tensor_data(input->lens))[b] - 2 : places;
        n = n > places ? places : n;
        ((int32_t *)attn_tensor_data(maps->residues))[b] = (int32_t)(n > 0 ? n : 0);
    }
    return maps->contacts && maps->residues;
}

static void forward(const void *self, const attn__call *call)
{
    const encoder_model *m = self;
    attn_named_list weights = {.context = attn_tape_context(call->tape)};
    attn__encoder_maps maps = {0};
    attn__encoder_input input = {.tokens = attn__call_input(call, "tokens"),
                                 .lens = attn__call_input(call, "valid_lens"),
                                 .segments = attn__call_input(call, "segments")};
    const attn_tensor *offsets = attn__call_input(call, "offsets");
    attn_nn_packed packed;
    attn_tensor *slot;
    if (!input.tokens || !has_heads(m, call, offsets != NULL))
        return;
    if (attn_tensor_rank(input.tokens) != 2) {
        attn__fail(weights.context, ATTN_ERROR_SHAPE, "tokens: expected 2 axes, found %d",
                   attn_tensor_rank(input.tokens));
        return;
    }
    if (input.segments && !m->encoder.front.segments.weight) {
        attn__fail(weights.context, ATTN_ERROR_ARGUMENT,
                   "transformer-encoder: the setting segments is 0, so the model takes no input segments");
        return;
    }
    if (offsets && !unpack(&packed, call->tape, &input, offsets))
        return;
    input.packed = offsets ? &packed : NULL;
    maps.weights = attn__wanted(call, "weights", &slot) ? &weights : NULL;
    if (attn__wanted(call, "contacts", &slot) && !contacts_begin(m, call, &input, &maps))
        return;
    attn_tensor *out = attn__transformer_encode_input(&m->encoder, call->tape, &input, &maps);
    attn__call_output(call, "out", out);
    if (maps.weights)
        attn__call_output(call, "weights", attn__stack(call->tape, &weights, "encoder"));
    if (out && maps.contacts) {
        attn__contacts_finish(&maps.regression, maps.residues, maps.contacts);
        attn__call_output(call, "contacts", maps.contacts);
    }
    heads_forward(m, call, &input, out);
    attn_named_clear(&weights);
}

const attn__kind attn__kind_transformer_encoder = {
    .about = {.name = "transformer-encoder",
              .summary = "embedding, positions, blocks of self-attention and feed-forward networks; by its settings "
                         "BERT, RoBERTa, DistilBERT, ModernBERT and ESM-2",
              .source = "Vaswani et al. 2017, arXiv:1706.03762; Dive into Deep Learning, 11.7",
              ATTN__PORTS(keys, inputs, outputs)},
    .size = sizeof(encoder_model),
    .build = build,
    .forward = forward,
};
