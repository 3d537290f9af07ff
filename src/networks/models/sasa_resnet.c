/* SPDX-License-Identifier: MIT
 *
 * Defines ResNets of 26, 38 and 50 layers in which self-attention in windows replaces the 3 x 3 convolutions
 * (Ramachandran et al. 2019). The parameters have the names of the well-known PyTorch model (init, layerI.J.conv1..3,
 * shortcut, dense). Only the names inside conv2.0, which is the attention, are this library's. The attention of the
 * PyTorch model is a different function (a softmax for each channel), so its weights cannot be used in any case. */
#include "models/vision_parts.h"

#include "base/context.h"
#include "nn/named.h"
#include "tensor/tape_state.h"

#include <stdlib.h>

enum { STAGES = 4, EXPANSION = 4, MAX_BLOCKS = 6 };

static const char *const depths[] = {"26", "38", "50", NULL};
static const int blocks_of[][STAGES] = {{1, 2, 4, 1}, {2, 3, 5, 2}, {3, 4, 6, 3}};
enum { STEM_CONV, STEM_SMALL, STEM_ATTENTION };
static const char *const stems[] = {"conv", "small", "attention", NULL};
static const char *const paddings[] = {"zero", "mask", "shift", NULL};

static const attn_setting keys[] = {
    {"depth", ATTN_CONFIG_TYPE_INT, "26", 0, 0, depths, "layers"},
    {"stem", ATTN_CONFIG_TYPE_TEXT, "conv", 0, 0, stems,
     "conv: 7 x 7 of stride 2 and pooling, for large pictures; small: 3 x 3, for those of 28 or 32 pixels; attention: "
     "in "
     "blocks of 4 x 4, and pooling of these"},
    ATTN__KEY_COUNT("in_channels", "3", "channels of an image"),
    ATTN__KEY_COUNT("width", "64", "channels of the first stage; a multiple of num_heads"),
    ATTN__KEY_COUNT("kernel_size", "7", "pixels of a window along each axis, odd"),
    ATTN__KEY_COUNT("num_heads", "8", "heads"),
    {"padding", ATTN_CONFIG_TYPE_TEXT, "zero", 0, 0, paddings, "pixels outside, as in local-self-attention"},
    ATTN__KEY_COUNT("num_classes", "1000", "classes"),
    ATTN__KEY_INIT,
};
static const attn_port inputs[] = {ATTN__PORT("x", "(b,in_channels,h,w)", "images of any size")};
/* In the first block of a stage, attention runs before the image is halved. The weights of that block are therefore
 * among those of the previous stage. */
static const attn_port outputs[] = {
    ATTN__PORT("logits", "(b,num_classes)", "one score a class"),
    ATTN__PORT_OPTIONAL("windows_1", "(n,b,num_heads,y,x,kernel_size,kernel_size)",
                        "weights of each pixel's window in the n blocks that attend at the stem's resolution"),
    ATTN__PORT_OPTIONAL("windows_2", "as windows_1", "at half of it"),
    ATTN__PORT_OPTIONAL("windows_3", "as windows_1", "at a quarter"),
    ATTN__PORT_OPTIONAL("windows_4", "as windows_1", "at an eighth; n is 0 at depth 26"),
};

typedef struct bottleneck {
    attn_nn_conv conv1, conv3, shortcut;
    attn_nn_batch_norm norm1, norm2, norm3, shortcut_norm;
    attn_nn_image_attention attention;
    int64_t stride;
    bool has_shortcut;
} bottleneck;

typedef struct resnet {
    attn_nn_conv stem;
    attn_nn_batch_norm stem_norm;
    attn_nn_attention_stem attention_stem;
    int stem_kind;
    int blocks[STAGES];
    bottleneck block[STAGES][MAX_BLOCKS];
    attn_nn_linear dense;
} resnet;

static int depth_of(int64_t layers)
{
    int i = 0;
    while (depths[i + 1] && strtoll(depths[i], NULL, 10) != layers)
        i++;
    return i;
}

/* Relative positions span all channels together: the first heads use only row positions, and the last heads only column
 * positions. The tables of positions then have the width for which the models have as many parameters as in the paper:
 * 10.3, 14.1 and 18.0 million. Scores are not scaled, as in eq. 2 of the paper. */
static void attention_init(attn_nn_image_attention *attention, attn_nn_builder *builder, const attn_config *config,
                           int64_t width)
{
    static const attn_border borders[] = {ATTN_BORDER_ZERO, ATTN_BORDER_MASK, ATTN_BORDER_SHIFT};
    int64_t heads = attn_config_int(config, "num_heads", 8);
    if (width % heads != 0) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT, "%sattention: %lld heads do not divide %lld channels",
                   builder->prefix, (long long)heads, (long long)width);
        return;
    }
    attn_nn_push(builder, "conv2.0");
    attn_nn_image_attention_init(
        attention, builder,
        &(attn_nn_image_attention_options){.in_channels = width,
                                           .mid = width / heads,
                                           .out_channels = width,
                                           .heads = heads,
                                           .window = attn_config_int(config, "kernel_size", 7),
                                           .relative = true,
                                           .whole = true,
                                           .head_major = true,
                                           .scale = 1,
                                           .border = borders[attn__config_choice(config, "padding", paddings)]});
    attn_nn_pop(builder);
}

static void block_init(bottleneck *b, attn_nn_builder *builder, const attn_config *config, int64_t in, int64_t width,
                       int64_t stride)
{
    int64_t out = EXPANSION * width;
    b->stride = stride;
    b->has_shortcut = stride != 1 || in != out;
    attn__nn_pointwise_named(&b->conv1, builder, "conv1.0", in, width, false);
    attn__nn_batch_norm_named(&b->norm1, builder, "conv1.1", width, false);
    attention_init(&b->attention, builder, config, width);
    attn__nn_batch_norm_named(&b->norm2, builder, "conv2.1", width, false);
    attn__nn_pointwise_named(&b->conv3, builder, "conv3.0", width, out, false);
    attn__nn_batch_norm_named(&b->norm3, builder, "conv3.1", out, false);
    if (b->has_shortcut) {
        attn__nn_conv_named(
            &b->shortcut, builder, "shortcut.0",
            &(attn_nn_conv_options){.spatial = 2, .in_channels = in, .out_channels = out, .stride = {stride, stride}});
        attn__nn_batch_norm_named(&b->shortcut_norm, builder, "shortcut.1", out, false);
    }
}

static void stem_init(resnet *r, attn_nn_builder *builder, const attn_config *config, int64_t width)
{
    int64_t in = attn_config_int(config, "in_channels", 3);
    r->stem_kind = attn__config_choice(config, "stem", stems);
    if (r->stem_kind == STEM_ATTENTION) {
        attn_nn_push(builder, "init.0");
        attn_nn_attention_stem_init(&r->attention_stem, builder, in, width);
        attn_nn_pop(builder);
    } else {
        int64_t k = r->stem_kind == STEM_CONV ? 7 : 3, step = r->stem_kind == STEM_CONV ? 2 : 1;
        attn__nn_conv_named(&r->stem, builder, "init.0",
                            &(attn_nn_conv_options){.spatial = 2,
                                                    .in_channels = in,
                                                    .out_channels = width,
                                                    .kernel = {k, k},
                                                    .stride = {step, step},
                                                    .padding = {k / 2, k / 2}});
    }
    attn__nn_batch_norm_named(&r->stem_norm, builder, "init.1", width, false);
}

static void build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    resnet *r = self;
    int64_t width = attn_config_int(config, "width", 64), in = width;
    int depth = depth_of(attn_config_int(config, "depth", 26));
    stem_init(r, builder, config, width);
    for (int s = 0; s < STAGES; s++) {
        r->blocks[s] = blocks_of[depth][s];
        for (int i = 0; i < r->blocks[s]; i++) {
            attn_nn_pushf(builder, "layer%d.%d", s + 1, i);
            block_init(&r->block[s][i], builder, config, in, width << s, s > 0 && i == 0 ? 2 : 1);
            attn_nn_pop(builder);
            in = EXPANSION * (width << s);
        }
    }
    attn__nn_linear_named(&r->dense, builder, "dense", in, attn_config_int(config, "num_classes", 1000), true);
}

/* ---------------------------------------------------------------------------------------------- forward */

static attn_tensor *normed(const attn_nn_conv *conv, const attn_nn_batch_norm *norm, attn_tape *tape, attn_tensor *x)
{
    return attn_nn_batch_norm_forward(norm, tape, attn_nn_conv_forward(conv, tape, x));
}

/* Attention runs at full resolution. If the block halves the image, the mean over 2 x 2 pixels follows. If a side is
 * odd, the mean leaves out the last row or column. The shortcut's convolution of stride 2 keeps it, so the shortcut's
 * result is cropped. */
static attn_tensor *block_forward(const bottleneck *b, attn_tape *tape, attn_tensor *x, attn_tensor **map)
{
    attn_tensor *y = attn_activate(tape, normed(&b->conv1, &b->norm1, tape, x), ATTN_ACTIVATION_RELU);
    y = attn_nn_image_attention_forward(&b->attention, tape, y, map);
    y = attn_activate(tape, attn_nn_batch_norm_forward(&b->norm2, tape, y), ATTN_ACTIVATION_RELU);
    y = normed(&b->conv3, &b->norm3, tape, y);
    if (b->stride > 1)
        y = attn_avg_pool(tape, y, 2, (int64_t[]){b->stride, b->stride}, NULL);
    if (b->has_shortcut)
        x = normed(&b->shortcut, &b->shortcut_norm, tape, x);
    if (!x || !y)
        return NULL;
    x = attn_slice(tape, attn_slice(tape, x, 2, 0, attn_tensor_length(y, 2)), 3, 0, attn_tensor_length(y, 3));
    return attn_activate(tape, attn_add(tape, y, x), ATTN_ACTIVATION_RELU);
}

/* Runs the stem. Its result has a quarter of the image's height and width. The attention stem has no ReLU: max
 * pooling follows directly after its norm. */
static attn_tensor *stem_forward(const resnet *r, attn_tape *tape, attn_tensor *x)
{
    if (r->stem_kind == STEM_ATTENTION) {
        const int64_t side = ATTN_NN_STEM_SIDE;
        attn_tensor *y = attn_nn_attention_stem_forward(&r->attention_stem, tape, x);
        y = attn_nn_batch_norm_forward(&r->stem_norm, tape, y);
        y = attn_max_pool(tape, y, 2, (int64_t[]){1, side * side}, NULL, NULL);
        return y ? attn_reshape(tape, y, 4,
                                (int64_t[]){attn_tensor_length(y, 0), attn_tensor_length(y, 1),
                                            attn_tensor_length(x, 2) / side, attn_tensor_length(x, 3) / side})
                 : NULL;
    }
    x = attn_activate(tape, normed(&r->stem, &r->stem_norm, tape, x), ATTN_ACTIVATION_RELU);
    return r->stem_kind == STEM_CONV
               ? attn_max_pool(tape, x, 2, (int64_t[]){3, 3}, (int64_t[]){2, 2}, (int64_t[]){1, 1})
               : x;
}

/* Returns weights with a first length of zero, for a grid on which no block attends. A tensor is needed even in this
 * case, because a requested output must exist. */
static attn_tensor *no_windows(const resnet *r, attn_tape *tape, const attn_tensor *x)
{
    const attn_nn_image_attention_options *o = &r->block[0][0].attention.options;
    const int64_t shape[] = {0, attn_tensor_length(x, 0), o->heads, 0, 0, o->window, o->window};
    return attn_tape_tensor(tape, attn_tensor_dtype(x), 7, shape, NULL);
}

static void forward(const void *self, const attn__call *call)
{
    static const char *const names[STAGES] = {"windows_1", "windows_2", "windows_3", "windows_4"};
    const resnet *r = self;
    attn_tape *tape = call->tape;
    attn_named_list maps = {.context = attn_tape_context(tape)};
    attn_tensor *x = stem_forward(r, tape, attn__call_input(call, "x"));
    for (int s = 0; s < STAGES; s++) {
        for (int i = 0; i < r->blocks[s]; i++) {
            int grid = s > 0 && i == 0 ? s - 1 : s;
            attn_tensor *map = NULL;
            attn_tensor **wanted = attn__wanted(call, names[grid], &map);
            attn__block_begin(tape, wanted != NULL);
            x = attn__block_end(tape, wanted != NULL, block_forward(&r->block[s][i], tape, x, wanted));
            attn__weights_add(&maps, names[grid], i, map);
        }
    }
    for (int s = 0; x && s < STAGES; s++) {
        attn_tensor *slot = NULL, *windows = attn__stack(tape, &maps, names[s]);
        const bool none = !windows && attn__wanted(call, names[s], &slot);
        attn__call_output(call, names[s], none ? no_windows(r, tape, x) : windows);
    }
    attn_named_clear(&maps);
    if (x) {
        x = attn_reshape(tape, x, 3, (int64_t[]){attn_tensor_length(x, 0), attn_tensor_length(x, 1), -1});
        attn__call_output(call, "logits", attn_nn_linear_forward(&r->dense, tape, attn_mean(tape, x, 2)));
    }
}

const attn__kind attn__kind_sasa_resnet = {
    .about = {.name = "sasa-resnet",
              .summary = "a ResNet of self-attention in windows: classifies images",
              .source = "Ramachandran et al. 2019, arXiv:1906.05909",
              ATTN__PORTS(keys, inputs, outputs)},
    .size = sizeof(resnet),
    .build = build,
    .forward = forward,
};
