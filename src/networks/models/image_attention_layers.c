/* SPDX-License-Identifier: MIT
 *
 * Defines two kinds of self-attention over images: global attention, which has relative positions, and attention in
 * local windows.
 */
#include "models/model_keys.h"

#include "nn/spatial.h"

#include <string.h>

static const char *const paddings[] = {"zero", "mask", "shift", NULL};
static const char *const orders[] = {"interleaved", "major", NULL};
static const char *const spans[] = {"head", "whole", NULL};
static const char *const scores[] = {"dot", "channel", NULL};

#define SIZES                                                                                                          \
    ATTN__KEY_COUNT("in_channels", NULL, "channels of the image"),                                                     \
        ATTN__KEY_COUNT("mid_channels", NULL, "channels of each head; even, half for rows and half for columns"),      \
        ATTN__KEY_COUNT("out_channels", NULL, "channels of the result"), ATTN__KEY_COUNT("num_heads", NULL, "heads")

static const attn_setting global_keys[] = {
    SIZES,
    ATTN__KEY_COUNT("max_pos_embedding", NULL, "longest side that has relative positions"),
    ATTN__KEY_INIT,
};

/* The last five settings exist to reproduce another implementation, which differs from the paper. */
static const attn_setting local_keys[] = {
    SIZES,
    ATTN__KEY_COUNT("kernel_size", NULL, "pixels of the window along each axis, odd"),
    ATTN__KEY_COUNT("stride", "1", "pixels between the centres of windows"),
    {"padding", ATTN_CONFIG_TYPE_TEXT, "zero", 0, 0, paddings,
     "pixels outside: zero: black ones that take part; mask: left out; shift: the window moves inwards until it fits"},
    ATTN__KEY_FLAG("relative", "true", "relative positions in the scores"),
    ATTN__KEY_FLAG(
        "project", "true",
        "a last projection; false: the heads side by side are the result, out_channels = num_heads * mid_channels"),
    ATTN__KEY_FLAG("bias", "true", "biases of the projections"),
    {"scale", ATTN_CONFIG_TYPE_REAL, "0", 0, 1e30, NULL, "of the scores; 0: 1/sqrt(in_channels); the paper has 1"},
    {"head_order", ATTN_CONFIG_TYPE_TEXT, "interleaved", 0, 0, orders,
     "where channel c of head h lies: interleaved: c * num_heads + h; major: h * mid_channels + c"},
    {"relative_span", ATTN_CONFIG_TYPE_TEXT, "head", 0, 0, spans,
     "what the halves for rows and columns are halves of: each head's channels; whole: all channels, so that the first "
     "heads see only rows and the last ones only columns (leaderj1001's)"},
    {"scores", ATTN_CONFIG_TYPE_TEXT, "dot", 0, 0, scores,
     "dot: q.k over a head; channel: each channel is a head of its own (leaderj1001's; needs relative_span whole)"},
    ATTN__KEY_INIT,
};

static const attn_port inputs[] = {ATTN__PORT("x", "(b,in_channels,h,w)", "an image; h and w may differ")};
static const attn_port outputs[] = {
    ATTN__PORT("out", "(b,out_channels,h',w')", "h' = ceil(h / stride)"),
    ATTN__PORT_OPTIONAL("weights", "(b,heads,h',w',kh,kw)", "of each query over its keys"),
};

static bool text_is(const attn_config *config, const char *key, const char *text)
{
    return strcmp(attn_config_text(config, key, ""), text) == 0;
}

static attn_nn_image_attention_options sizes_of(const attn_config *config)
{
    return (attn_nn_image_attention_options){
        .in_channels = attn_config_int(config, "in_channels", 0),
        .mid = attn_config_int(config, "mid_channels", 0),
        .out_channels = attn_config_int(config, "out_channels", 0),
        .heads = attn_config_int(config, "num_heads", 0),
        .relative = true,
        .bias = true,
        .project = true,
    };
}

static void global_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    attn_nn_image_attention_options o = sizes_of(config);
    o.max_positions = attn_config_int(config, "max_pos_embedding", 0);
    attn_nn_image_attention_init(self, builder, &o);
}

static void local_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    attn_nn_image_attention_options o = sizes_of(config);
    o.window = attn_config_int(config, "kernel_size", 0);
    o.stride = attn_config_int(config, "stride", 1);
    o.border = text_is(config, "padding", "zero")   ? ATTN_BORDER_ZERO
               : text_is(config, "padding", "mask") ? ATTN_BORDER_MASK
                                                    : ATTN_BORDER_SHIFT;
    o.relative = attn_config_bool(config, "relative", true);
    o.bias = attn_config_bool(config, "bias", true);
    o.project = attn_config_bool(config, "project", true);
    o.scale = attn_config_real(config, "scale", 0);
    o.head_major = text_is(config, "head_order", "major");
    o.whole = text_is(config, "relative_span", "whole");
    o.per_channel = text_is(config, "scores", "channel");
    attn_nn_image_attention_init(self, builder, &o);
}

static void forward(const void *self, const attn__call *call)
{
    attn_tensor *maps = NULL, **wanted = attn__wanted(call, "weights", &maps);
    attn_tensor *x = attn__call_input(call, "x");
    attn__call_output(call, "out", attn_nn_image_attention_forward(self, call->tape, x, wanted));
    attn__call_output(call, "weights", maps);
}

const attn__kind attn__kind_stand_alone_self_attention = {
    .about = {.name = "stand-alone-self-attention",
              .summary = "every pixel attends every pixel, with relative rows and columns",
              .source = "Ramachandran et al. 2019, arXiv:1906.05909",
              ATTN__PORTS(global_keys, inputs, outputs)},
    .size = sizeof(attn_nn_image_attention),
    .build = global_build,
    .forward = forward,
};

const attn__kind attn__kind_local_self_attention = {
    .about = {.name = "local-self-attention",
              .summary = "every pixel attends a window around it, with relative rows and columns",
              .source = "Ramachandran et al. 2019, arXiv:1906.05909",
              ATTN__PORTS(local_keys, inputs, outputs)},
    .size = sizeof(attn_nn_image_attention),
    .build = local_build,
    .forward = forward,
};
