/* SPDX-License-Identifier: MIT
 *
 * Defines the attention layers with queries, keys, values and valid lengths: dot-product, additive, bilinear and
 * multi-head attention.
 */
#include "models/model_keys.h"

#include "nn/check.h"
#include "nn/dot_product.h"
#include "nn/named.h"

static const attn_port inputs[] = {
    ATTN__PORT("queries", "(b,q,dq)", ""),
    ATTN__PORT("keys", "(b,k,dk)", ""),
    ATTN__PORT("values", "(b,k,dv)", ""),
    ATTN__PORT_LENS("(b) or (b,q)"),
};
static const attn_port outputs[] = {
    ATTN__PORT("out", "(b,q,d)", "weighted means of the values"),
    ATTN__PORT_OPTIONAL("weights", "(b,q,k), multi-head (b,h,q,k)", "attention weights, before dropout"),
};

/* The inputs and outputs that all attention layers of this file have. */
typedef struct operands {
    attn_tensor *queries, *keys, *values;
    attn_nn_mask mask;
    attn_tensor *weights;
    attn_tensor **wanted;
} operands;

static operands read_inputs(const attn__call *call, double fill)
{
    return (operands){.queries = attn__call_input(call, "queries"),
                      .keys = attn__call_input(call, "keys"),
                      .values = attn__call_input(call, "values"),
                      .mask = {.valid_lens = attn__call_input(call, "valid_lens"), .fill = fill}};
}

static void write_outputs(const attn__call *call, attn_tensor *out, attn_tensor *weights)
{
    attn__call_output(call, "out", out);
    attn__call_output(call, "weights", weights);
}

/* ----------------------------------------------------------------------------------------- dot product */

static const attn_setting dot_keys[] = {ATTN__KEY_DROPOUT, ATTN__KEY_FILL};

typedef struct dot_product {
    double dropout, fill;
} dot_product;

static void dot_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    (void)builder;
    *(dot_product *)self = (dot_product){.dropout = attn_config_real(config, "dropout", 0),
                                         .fill = attn_config_real(config, "mask_fill", 0)};
}

static void dot_forward(const void *self, const attn__call *call)
{
    const dot_product *layer = self;
    operands o = read_inputs(call, layer->fill);
    attn_tensor **wanted = attn__wanted(call, "weights", &o.weights);
    attn_tensor *out = attn_nn_dot_product(call->tape, o.queries, o.keys, o.values, &o.mask, layer->dropout, wanted);
    write_outputs(call, out, o.weights);
}

const attn__kind attn__kind_dot_product_attention = {
    .about = {.name = "dot-product-attention",
              .summary = "softmax(q k^T / sqrt(d)) v",
              .source = "Vaswani et al. 2017, arXiv:1706.03762; Dive into Deep Learning, 11.3",
              ATTN__PORTS(dot_keys, inputs, outputs)},
    .size = sizeof(dot_product),
    .build = dot_build,
    .forward = dot_forward,
};

/* -------------------------------------------------------------------------------------------- additive */

static const attn_setting additive_keys[] = {
    ATTN__KEY_COUNT("num_hiddens", NULL, "channels in which query and key are added"),
    ATTN__KEY_COUNT("query_size", "", "channels of the queries; default num_hiddens"),
    ATTN__KEY_COUNT("key_size", "", "channels of the keys; default num_hiddens"),
    ATTN__KEY_DROPOUT,
    ATTN__KEY_FILL,
    ATTN__KEY_INIT};

typedef struct additive {
    attn_nn_additive layer;
    double fill;
} additive;

static void additive_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    additive *a = self;
    int64_t hidden = attn_config_int(config, "num_hiddens", 0);
    a->fill = attn_config_real(config, "mask_fill", 0);
    attn_nn_additive_init(&a->layer, builder, attn_config_int(config, "query_size", hidden),
                          attn_config_int(config, "key_size", hidden), hidden, attn_config_real(config, "dropout", 0));
}

static void additive_forward(const void *self, const attn__call *call)
{
    const additive *a = self;
    operands o = read_inputs(call, a->fill);
    attn_tensor **wanted = attn__wanted(call, "weights", &o.weights);
    attn_tensor *out = attn_nn_additive_forward(&a->layer, call->tape, o.queries, o.keys, o.values, &o.mask, wanted);
    write_outputs(call, out, o.weights);
}

const attn__kind attn__kind_additive_attention = {
    .about = {.name = "additive-attention",
              .summary = "scores w_v . tanh(W_q q + W_k k), in memory linear in queries and keys",
              .source = "Bahdanau et al. 2014, arXiv:1409.0473; Dive into Deep Learning, 11.3",
              ATTN__PORTS(additive_keys, inputs, outputs)},
    .size = sizeof(additive),
    .build = additive_build,
    .forward = additive_forward,
};

/* -------------------------------------------------------------------------------------------- bilinear */

static const attn_setting bilinear_keys[] = {ATTN__KEY_COUNT("query_size", NULL, "channels of the queries"),
                                             ATTN__KEY_COUNT("key_size", NULL, "channels of the keys"),
                                             ATTN__KEY_DROPOUT, ATTN__KEY_FILL, ATTN__KEY_INIT};

typedef struct bilinear {
    attn_nn_linear m;
    int64_t query_size, key_size;
    double dropout, fill;
} bilinear;

static void bilinear_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    bilinear *b = self;
    b->query_size = attn_config_int(config, "query_size", 0);
    b->key_size = attn_config_int(config, "key_size", 0);
    b->dropout = attn_config_real(config, "dropout", 0);
    b->fill = attn_config_real(config, "mask_fill", 0);
    attn__nn_linear_named(&b->m, builder, "M", b->key_size, b->query_size, false);
}

/* Computes attention with the score q^T M k. It is computed as the dot product of q and the projected key M k. */
static void bilinear_forward(const void *self, const attn__call *call)
{
    const bilinear *b = self;
    operands o = read_inputs(call, b->fill);
    attn_tensor **wanted = attn__wanted(call, "weights", &o.weights);
    if (!attn__nn_has_channels(call->tape, "queries", o.queries, 3, 2, b->query_size) ||
        !attn__nn_has_channels(call->tape, "keys", o.keys, 3, 2, b->key_size))
        return;
    attn_tensor *keys = attn_nn_linear_forward(&b->m, call->tape, o.keys);
    attn_tensor *out =
        attn__nn_dot_product_scaled(call->tape, o.queries, keys, o.values, &o.mask, 1, b->dropout, wanted);
    write_outputs(call, out, o.weights);
}

const attn__kind attn__kind_bilinear_attention = {
    .about = {.name = "bilinear-attention",
              .summary = "scores q^T M k, for queries and keys of different sizes, without a scale",
              .source = "Luong et al. 2015, arXiv:1508.04025 (\"general\"); Dive into Deep Learning, 11.3",
              ATTN__PORTS(bilinear_keys, inputs, outputs)},
    .size = sizeof(bilinear),
    .build = bilinear_build,
    .forward = bilinear_forward,
};

/* ------------------------------------------------------------------------------------------ multi-head */

static const char *const score_choices[] = {
    [ATTN_NN_SCORE_DOT] = "dot", [ATTN_NN_SCORE_ADDITIVE] = "additive", [ATTN_NN_SCORE_BILINEAR] = "bilinear", NULL};

static const attn_setting multi_head_keys[] = {
    ATTN__KEY_COUNT("num_hiddens", NULL, "channels of the result"),
    ATTN__KEY_COUNT("num_heads", NULL, "heads; divides num_hiddens"),
    ATTN__KEY_DROPOUT,
    ATTN__KEY_FLAG("bias", "false", "biases of the four projections"),
    ATTN__KEY_COUNT("query_size", "", "channels of the queries; default num_hiddens"),
    ATTN__KEY_COUNT("key_size", "", "channels of the keys; default num_hiddens"),
    ATTN__KEY_COUNT("value_size", "", "channels of the values; default num_hiddens"),
    {"score", ATTN_CONFIG_TYPE_TEXT, "dot", 0, 0, score_choices,
     "of a head's query and key: dot (divided by the root of its channels), additive or bilinear (without a scale)"},
    ATTN__KEY_FILL,
    ATTN__KEY_INIT};

typedef struct multi_head {
    attn_nn_multi_head layer;
    double fill;
} multi_head;

static void multi_head_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    multi_head *m = self;
    int score = attn__config_choice(config, "score", score_choices);
    attn_nn_multi_head_options options = {.hidden = attn_config_int(config, "num_hiddens", 0),
                                          .heads = attn_config_int(config, "num_heads", 0),
                                          .query_size = attn_config_int(config, "query_size", 0),
                                          .key_size = attn_config_int(config, "key_size", 0),
                                          .value_size = attn_config_int(config, "value_size", 0),
                                          .score = (attn_nn_score)score,
                                          .bias = attn_config_bool(config, "bias", false),
                                          .dropout = attn_config_real(config, "dropout", 0)};
    m->fill = attn_config_real(config, "mask_fill", 0);
    attn_nn_multi_head_init(&m->layer, builder, &options);
}

static void multi_head_forward(const void *self, const attn__call *call)
{
    const multi_head *m = self;
    operands o = read_inputs(call, m->fill);
    attn_tensor **wanted = attn__wanted(call, "weights", &o.weights);
    attn_tensor *out = attn_nn_multi_head_forward(&m->layer, call->tape, o.queries, o.keys, o.values, &o.mask, wanted);
    write_outputs(call, out, o.weights);
}

const attn__kind attn__kind_multi_head_attention = {
    .about = {.name = "multi-head-attention",
              .summary = "heads that attend side by side, each to its own projection",
              .source = "Vaswani et al. 2017, arXiv:1706.03762; Dive into Deep Learning, 11.5",
              ATTN__PORTS(multi_head_keys, inputs, outputs)},
    .size = sizeof(multi_head),
    .build = multi_head_build,
    .forward = multi_head_forward,
};
