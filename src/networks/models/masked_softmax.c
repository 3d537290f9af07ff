/* SPDX-License-Identifier: MIT
 *
 * Defines an architecture whose only layer is the softmax of attention with valid lengths.
 */
#include "models/model_keys.h"

static const attn_setting keys[] = {ATTN__KEY_FILL};
static const attn_port inputs[] = {ATTN__PORT("x", "(b,q,k)", "scores"), ATTN__PORT_LENS("(b) or (b,q)")};
static const attn_port outputs[] = {ATTN__PORT("out", "(b,q,k)", "weights that sum to 1 over the valid keys")};

typedef struct masked_softmax {
    double fill;
} masked_softmax;

static void build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    (void)builder;
    ((masked_softmax *)self)->fill = attn_config_real(config, "mask_fill", 0);
}

static void forward(const void *self, const attn__call *call)
{
    attn_nn_mask mask = {.valid_lens = attn__call_input(call, "valid_lens"),
                         .fill = ((const masked_softmax *)self)->fill};
    attn__call_output(call, "out", attn_nn_masked_softmax(call->tape, attn__call_input(call, "x"), &mask));
}

const attn__kind attn__kind_masked_softmax = {
    .about = {.name = "masked-softmax",
              .summary = "softmax over the keys that are within the valid length",
              .source = "Dive into Deep Learning, 11.3",
              ATTN__PORTS(keys, inputs, outputs)},
    .size = sizeof(masked_softmax),
    .build = build,
    .forward = forward,
};
