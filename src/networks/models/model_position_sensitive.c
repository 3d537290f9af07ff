/* SPDX-License-Identifier: MIT
 *
 * Defines an architecture whose only layer is position-sensitive axial attention.
 */
#include "models/vision_parts.h"

#include <string.h>

static const char *const axes[] = {"height", "width", NULL};

static const attn_setting keys[] = {
    ATTN__KEY_COUNT("in_planes", NULL, "channels of the image"),
    ATTN__KEY_COUNT("out_planes", NULL, "channels of the result, a multiple of 2 * groups"),
    ATTN__KEY_COUNT("groups", "8", "heads"),
    ATTN__KEY_COUNT("kernel_size", NULL, "length of the axis"),
    {"axis", ATTN_CONFIG_TYPE_TEXT, "height", 0, 0, axes, "along which pixels attend each other"},
    ATTN__KEY_INIT,
};
static const attn_port inputs[] = {ATTN__PORT("x", "(b,in_planes,h,w)", "an image; its axis is kernel_size long")};
static const attn_port outputs[] = {
    ATTN__PORT("out", "(b,out_planes,h,w)", ""),
    ATTN__PORT_OPTIONAL("weights", "(b,lines,groups,kernel_size,kernel_size)", "attention weights of each line"),
};

static void build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    bool width = strcmp(attn_config_text(config, "axis", axes[0]), axes[1]) == 0;
    attn_nn_position_sensitive_attention_init(
        self, builder, attn_config_int(config, "in_planes", 0), attn_config_int(config, "out_planes", 0),
        attn_config_int(config, "groups", 8), attn_config_int(config, "kernel_size", 0), width ? 3 : 2);
}

static void forward(const void *self, const attn__call *call)
{
    attn_tensor *weights = NULL, **wanted = attn__wanted(call, "weights", &weights);
    attn_tensor *x = attn__call_input(call, "x");
    attn__call_output(call, "out", attn_nn_position_sensitive_attention_forward(self, call->tape, x, wanted));
    attn__call_output(call, "weights", weights);
}

const attn__kind attn__kind_position_sensitive_attention = {
    .about = {.name = "position-sensitive-attention",
              .summary = "attention along one axis of an image, positions in scores and values",
              .source = "Wang et al. 2020, arXiv:2003.07853",
              ATTN__PORTS(keys, inputs, outputs)},
    .size = sizeof(attn_nn_position_sensitive_attention),
    .build = build,
    .forward = forward,
};
