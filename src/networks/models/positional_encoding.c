/* SPDX-License-Identifier: MIT
 *
 * Defines an architecture whose only layer is the positional encoding with sines and cosines.
 */
#include "models/model_keys.h"

static const attn_setting keys[] = {
    ATTN__KEY_COUNT("num_hiddens", NULL, "channels"),
    ATTN__KEY_COUNT("max_len", "1000", "the most positions"),
    ATTN__KEY_DROPOUT,
};
static const attn_port inputs[] = {ATTN__PORT("x", "(b,t,num_hiddens)", "")};
static const attn_port outputs[] = {ATTN__PORT("out", "(b,t,num_hiddens)", "x plus the positions")};

static void build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    attn_nn_positional_init(self, builder, attn_config_int(config, "num_hiddens", 0),
                            attn_config_int(config, "max_len", 1000), attn_config_real(config, "dropout", 0));
}

static void forward(const void *self, const attn__call *call)
{
    attn__call_output(call, "out", attn_nn_positional_forward(self, call->tape, attn__call_input(call, "x"), 0));
}

const attn__kind attn__kind_positional_encoding = {
    .about = {.name = "positional-encoding",
              .summary = "adds sines and cosines of the position",
              .source = "Vaswani et al. 2017, arXiv:1706.03762; Dive into Deep Learning, 11.6",
              ATTN__PORTS(keys, inputs, outputs)},
    .size = sizeof(attn_nn_positional),
    .build = build,
    .forward = forward,
};
