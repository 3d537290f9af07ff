/* SPDX-License-Identifier: MIT
 *
 * Defines an architecture whose only layer is the non-local block.
 */
#include "models/vision_parts.h"

#include <string.h>

const char *const attn__pairwise_modes[] = {"embedded-gaussian", "gaussian", "dot-product", "concatenation", NULL};

static const attn_setting keys[] = {
    ATTN__KEY_COUNT("in_channels", NULL, "channels"),
    ATTN__KEY_COUNT("inter_channels", "", "channels inside; default in_channels / 2"),
    {"dimension", ATTN_CONFIG_TYPE_INT, "3", 1, 3, NULL, "1: signals, 2: images, 3: videos"},
    ATTN__KEY_FLAG("sub_sample", "true", "max-pool the keys over 2 (2 x 2) positions; the frames of a video are kept"),
    ATTN__KEY_FLAG("bn_layer", "true", "batch norm behind the last convolution"),
    ATTN__KEY_PAIRWISE,
    ATTN__KEY_INIT,
};
static const attn_port inputs[] = {ATTN__PORT("x", "(b,in_channels,spatial...)", "")};
static const attn_port outputs[] = {
    ATTN__PORT("out", "(b,in_channels,spatial...)", "x + W(y)"),
    ATTN__PORT_OPTIONAL("nl_map", "(b,n,n_keys)", "the weights of all pairs"),
};

attn_nn_pairwise attn__pairwise_of(const attn_config *config)
{
    const char *mode = attn_config_text(config, "mode", attn__pairwise_modes[0]);
    int i = 0;
    while (attn__pairwise_modes[i] && strcmp(attn__pairwise_modes[i], mode) != 0)
        i++;
    return (attn_nn_pairwise)i;
}

static void build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    attn_nn_non_local_init(self, builder, attn_config_int(config, "in_channels", 0),
                           attn_config_int(config, "inter_channels", 0), (int)attn_config_int(config, "dimension", 3),
                           attn__pairwise_of(config), attn_config_bool(config, "sub_sample", true),
                           attn_config_bool(config, "bn_layer", true));
}

static void forward(const void *self, const attn__call *call)
{
    attn_tensor *map = NULL, **wanted = attn__wanted(call, "nl_map", &map);
    attn_tensor *x = attn__call_input(call, "x");
    attn__call_output(call, "out", attn_nn_non_local_forward(self, call->tape, x, wanted));
    attn__call_output(call, "nl_map", map);
}

const attn__kind attn__kind_non_local = {
    .about = {.name = "non-local",
              .summary = "a non-local block: every position attends every other, over signals, images or videos",
              .source = "Wang et al. 2018, arXiv:1711.07971",
              ATTN__PORTS(keys, inputs, outputs)},
    .size = sizeof(attn_nn_non_local),
    .build = build,
    .forward = forward,
};
