/* SPDX-License-Identifier: MIT
 *
 * Defines DETR's attention and feed-forward layers, and attention with a key-content score.
 */
#include "models/model_keys.h"

#include "base/context.h"
#include "nn/named.h"
#include "tensor/parts.h"

#define KEY_DROPOUT                                                                                                    \
    {                                                                                                                  \
        "dropout", ATTN_CONFIG_TYPE_REAL, "0.1", 0, 0.99, NULL, "share of numbers dropped in training"                 \
    }

/* The settings that DETR's attention and key-content attention share. */
static const attn_setting keys[] = {
    ATTN__KEY_COUNT("M", NULL, "heads"),
    ATTN__KEY_COUNT("d", NULL, "channels"),
    ATTN__KEY_COUNT("d_head", "", "channels of a head; default d / M"),
    KEY_DROPOUT,
    ATTN__KEY_INIT,
};

static void build_attention(void *self, attn_nn_builder *builder, const attn_config *config, bool key_only)
{
    int64_t heads = attn_config_int(config, "M", 0), d = attn_config_int(config, "d", 0);
    int64_t d_head = attn_config_int(config, "d_head", 0);
    if (d_head == 0 && d % heads != 0) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT,
                   "%lld heads do not divide %lld channels; d_head sets the channels of a head", (long long)heads,
                   (long long)d);
        return;
    }
    attn_nn_detr_attention_init(self, builder, heads, d, d_head ? d_head : d / heads,
                                attn_config_real(config, "dropout", 0), key_only);
}

static void detr_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    build_attention(self, builder, config, false);
}

static void key_content_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    build_attention(self, builder, config, true);
}

static void detr_forward(const void *self, const attn__call *call)
{
    attn_tensor *x_q = attn__call_input(call, "x_q"), *x_kv = attn__call_input(call, "x_kv");
    attn_tensor *p_q = attn__call_input(call, "p_q"), *p_kv = attn__call_input(call, "p_kv");
    attn_tensor *weights = NULL, **wanted = attn__wanted(call, "weights", &weights);
    attn__call_output(call, "out", attn_nn_detr_attention_forward(self, call->tape, x_q, x_kv, p_q, p_kv, wanted));
    attn__call_output(call, "weights", weights);
}

static void key_content_forward(const void *self, const attn__call *call)
{
    attn_tensor *weights = NULL, **wanted = attn__wanted(call, "weights", &weights);
    attn__call_output(
        call, "out",
        attn_nn_detr_attention_forward(self, call->tape, attn__call_input(call, "x"), NULL, NULL, NULL, wanted));
    attn__call_output(call, "weights", weights);
}

static const attn_port detr_inputs[] = {
    ATTN__PORT("x_q", "(b,n_q,d)", "the input of queries"),
    ATTN__PORT_OPTIONAL("x_kv", "(b,n_kv,d)", "the input of keys and values; default x_q"),
    ATTN__PORT_OPTIONAL("p_q", "(1,n_q,d) or (b,n_q,d)", "positions, added for the queries"),
    ATTN__PORT_OPTIONAL("p_kv", "(1,n_kv,d) or (b,n_kv,d)", "positions, added for the keys, not for the values"),
};
static const attn_port detr_outputs[] = {
    ATTN__PORT("out", "(b,n_q,d)", ""),
    ATTN__PORT_OPTIONAL("weights", "(b,M,n_q,n_kv)", "attention weights, before dropout"),
};
static const attn_port plain_inputs[] = {ATTN__PORT("x", "(b,n,d)", "")};
static const attn_port plain_outputs[] = {ATTN__PORT("out", "(b,n,d)", "")};
static const attn_port key_content_outputs[] = {
    ATTN__PORT("out", "(b,n,d)", ""),
    ATTN__PORT_OPTIONAL("weights", "(b,M,1,n)", "attention weights, the same for all queries"),
};

const attn__kind attn__kind_detr_multi_head_attention = {
    .about = {.name = "detr-multi-head-attention",
              .summary = "multi-head attention with positions for queries and keys, residual and norm",
              .source = "Carion et al. 2020, arXiv:2005.12872",
              ATTN__PORTS(keys, detr_inputs, detr_outputs)},
    .size = sizeof(attn_nn_detr_attention),
    .build = detr_build,
    .forward = detr_forward,
};

const attn__kind attn__kind_key_content_attention = {
    .about = {.name = "key-content-attention",
              .summary = "one softmax over the keys for all queries, linear in time",
              .source = "Zhu et al. 2019, arXiv:1904.05873",
              ATTN__PORTS(keys, plain_inputs, key_content_outputs)},
    .size = sizeof(attn_nn_detr_attention),
    .build = key_content_build,
    .forward = key_content_forward,
};

/* ------------------------------------------------------------------------------------------------- FFN */

typedef struct ffn {
    attn_nn_ffn layers;
    attn_nn_layer_norm norm;
    double dropout;
} ffn;

static void ffn_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    ffn *f = self;
    int64_t d = attn_config_int(config, "d", 0), hidden = attn_config_int(config, "hidden", d);
    f->dropout = attn_config_real(config, "dropout", 0);
    f->layers.activation = ATTN_ACTIVATION_RELU;
    attn__nn_linear_named(&f->layers.dense1, builder, "ffn_layers.0", d, hidden, true);
    attn__nn_linear_named(&f->layers.dense2, builder, "ffn_layers.2", hidden, d, true);
    attn__nn_layer_norm_named(&f->norm, builder, "layer_norm", d, 0);
}

static void ffn_forward(const void *self, const attn__call *call)
{
    const ffn *f = self;
    attn_tensor *x = attn__call_input(call, "x"), *y = attn_nn_ffn_forward(&f->layers, call->tape, x);
    attn__call_output(call, "out",
                      attn_add_layer_norm(call->tape, x, y, f->dropout, f->norm.weight, f->norm.bias, f->norm.eps));
}

static const attn_setting ffn_keys[] = {
    ATTN__KEY_COUNT("d", NULL, "channels"),
    ATTN__KEY_COUNT("hidden", "", "channels inside; default d"),
    KEY_DROPOUT,
    ATTN__KEY_INIT,
};

const attn__kind attn__kind_detr_ffn = {
    .about = {.name = "detr-ffn",
              .summary = "two linear layers with ReLU between them, residual and norm",
              .source = "Carion et al. 2020, arXiv:2005.12872",
              ATTN__PORTS(ffn_keys, plain_inputs, plain_outputs)},
    .size = sizeof(ffn),
    .build = ffn_build,
    .forward = ffn_forward,
};
