/* SPDX-License-Identifier: MIT
 *
 * Defines ResNets of position-sensitive axial attention. Parameters have the names of Axial-DeepLab, including its
 * spelling "hight_block".
 */
#include "models/vision_parts.h"

#include "base/context.h"
#include "nn/named.h"
#include "tensor/tape_state.h"

#include <string.h>

enum { STAGES = 4, EXPANSION = 2, MAX_BLOCKS = 6 };

static const char *const depths[] = {"26", "50", NULL};
static const int blocks_of[][STAGES] = {{1, 2, 4, 1}, {3, 4, 6, 3}};

static const attn_setting keys[] = {
    {"depth", ATTN_CONFIG_TYPE_INT, "26", 0, 0, depths, "layers"},
    {"s", ATTN_CONFIG_TYPE_REAL, "0.5", 0.03125, 8, NULL,
     "width as a multiple of the large model's: 0.5 S, 0.75 M, 1 L"},
    ATTN__KEY_COUNT("groups", "8", "heads"),
    ATTN__KEY_COUNT("img_size", "224", "pixels of each side, a multiple of 32"),
    ATTN__KEY_COUNT("in_channels", "3", "channels of an image"),
    ATTN__KEY_COUNT("num_classes", "1000", "classes"),
    ATTN__KEY_INIT,
};
static const attn_port inputs[] = {ATTN__PORT("x", "(b,in_channels,img_size,img_size)", "images")};
static const attn_port outputs[] = {
    ATTN__PORT("logits", "(b,num_classes)", "one score a class"),
    ATTN__PORT_OPTIONAL("weights", "(2,b,lines,groups,n,n)", "of the last block, along columns, then along rows"),
};

typedef struct axial_block {
    attn_nn_conv down, up, downsample;
    attn_nn_batch_norm norm1, norm2, downsample_norm;
    attn_nn_position_sensitive_attention height, width;
    int64_t stride;
    bool has_downsample;
} axial_block;

typedef struct axial_resnet {
    int64_t size; /* side of the picture in pixels */
    attn_nn_conv stem;
    attn_nn_batch_norm norm;
    int blocks[STAGES];
    axial_block block[STAGES][MAX_BLOCKS];
    attn_nn_linear fc;
} axial_resnet;

/* Initializes a block. The weight of its second norm starts at zero. A new block therefore returns only its
 * shortcut. */
static void block_init(axial_block *b, attn_nn_builder *builder, int64_t in, int64_t planes, int64_t groups,
                       int64_t length, int64_t stride)
{
    int64_t out = EXPANSION * planes;
    b->stride = stride;
    b->has_downsample = stride != 1 || in != out;
    attn__nn_pointwise_named(&b->down, builder, "conv_down", in, planes, false);
    attn__nn_batch_norm_named(&b->norm1, builder, "bn1", planes, false);
    attn_nn_push(builder, "hight_block");
    attn_nn_position_sensitive_attention_init(&b->height, builder, planes, planes, groups, length, 2);
    attn_nn_pop(builder);
    attn_nn_push(builder, "width_block");
    attn_nn_position_sensitive_attention_init(&b->width, builder, planes, planes, groups, length, 3);
    attn_nn_pop(builder);
    attn__nn_pointwise_named(&b->up, builder, "conv_up", planes, out, false);
    attn__nn_batch_norm_named(&b->norm2, builder, "bn2", out, true);
    if (b->has_downsample) {
        attn__nn_conv_named(
            &b->downsample, builder, "downsample.0",
            &(attn_nn_conv_options){.spatial = 2, .in_channels = in, .out_channels = out, .stride = {stride, stride}});
        attn__nn_batch_norm_named(&b->downsample_norm, builder, "downsample.1", out, false);
    }
}

static void build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    axial_resnet *r = self;
    double s = attn_config_real(config, "s", 0.5);
    int64_t in = (int64_t)(64 * s), size = attn_config_int(config, "img_size", 224), length = size / 4;
    int depth = attn_config_int(config, "depth", 26) == 50;
    if (size % 32 != 0) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT, "axial-resnet: img_size %lld is not a multiple of 32",
                   (long long)size);
        return;
    }
    r->size = size;
    attn__nn_conv_named(&r->stem, builder, "conv1",
                        &(attn_nn_conv_options){.spatial = 2,
                                                .in_channels = attn_config_int(config, "in_channels", 3),
                                                .out_channels = in,
                                                .kernel = {7, 7},
                                                .stride = {2, 2},
                                                .padding = {3, 3}});
    attn__nn_batch_norm_named(&r->norm, builder, "bn1", in, false);
    for (int stage = 0; stage < STAGES; stage++) {
        int64_t planes = (int64_t)((128 << stage) * s);
        r->blocks[stage] = blocks_of[depth][stage];
        for (int i = 0; i < r->blocks[stage]; i++) {
            int64_t stride = stage > 0 && i == 0 ? 2 : 1;
            attn_nn_pushf(builder, "layer%d.%d", stage + 1, i);
            block_init(&r->block[stage][i], builder, in, planes, attn_config_int(config, "groups", 8), length, stride);
            attn_nn_pop(builder);
            in = EXPANSION * planes;
            length /= stride;
        }
    }
    attn__nn_linear_named(&r->fc, builder, "fc", in, attn_config_int(config, "num_classes", 1000), true);
}

static attn_tensor *normed(const attn_nn_conv *conv, const attn_nn_batch_norm *norm, attn_tape *tape, attn_tensor *x)
{
    return attn_nn_batch_norm_forward(norm, tape, attn_nn_conv_forward(conv, tape, x));
}

/* *weights (weights may be NULL) gets the attention weights of both axes, [2,B,lines,groups,n,n]. */
static attn_tensor *block_forward(const axial_block *b, attn_tape *tape, attn_tensor *x, attn_tensor **weights)
{
    attn_named_list maps = {.context = attn_tape_context(tape)};
    attn_tensor *columns = NULL, *rows = NULL;
    attn_tensor *y = attn_activate(tape, normed(&b->down, &b->norm1, tape, x), ATTN_ACTIVATION_RELU);
    y = attn_nn_position_sensitive_attention_forward(&b->height, tape, y, weights ? &columns : NULL);
    y = attn_nn_position_sensitive_attention_forward(&b->width, tape, y, weights ? &rows : NULL);
    attn__weights_add(&maps, "weights", 0, columns);
    attn__weights_add(&maps, "weights", 1, rows);
    if (weights)
        *weights = y ? attn__stack(tape, &maps, "weights") : NULL;
    attn_named_clear(&maps);
    if (b->stride > 1)
        y = attn_avg_pool(tape, y, 2, (int64_t[]){b->stride, b->stride}, NULL);
    y = normed(&b->up, &b->norm2, tape, attn_activate(tape, y, ATTN_ACTIVATION_RELU));
    x = b->has_downsample ? normed(&b->downsample, &b->downsample_norm, tape, x) : x;
    return attn_activate(tape, attn_add(tape, y, x), ATTN_ACTIVATION_RELU);
}

static void forward(const void *self, const attn__call *call)
{
    const axial_resnet *r = self;
    attn_tape *tape = call->tape;
    attn_tensor *x = attn__call_input(call, "x"), *weights = NULL;
    if (!attn__images_fit(tape, "axial-resnet", x, r->size, r->size, ""))
        return;
    x = attn_activate(tape, normed(&r->stem, &r->norm, tape, x), ATTN_ACTIVATION_RELU);
    x = attn_max_pool(tape, x, 2, (int64_t[]){3, 3}, (int64_t[]){2, 2}, (int64_t[]){1, 1});
    for (int stage = 0; stage < STAGES; stage++) {
        for (int i = 0; i < r->blocks[stage]; i++) {
            bool keep = stage == STAGES - 1 && i == r->blocks[stage] - 1 && attn__wanted(call, "weights", &weights);
            attn__block_begin(tape, keep);
            x = attn__block_end(tape, keep, block_forward(&r->block[stage][i], tape, x, keep ? &weights : NULL));
        }
    }
    if (x) {
        x = attn_reshape(tape, x, 3, (int64_t[]){attn_tensor_length(x, 0), attn_tensor_length(x, 1), -1});
        attn__call_output(call, "logits", attn_nn_linear_forward(&r->fc, tape, attn_mean(tape, x, 2)));
        attn__call_output(call, "weights", weights);
    }
}

const attn__kind attn__kind_axial_resnet = {
    .about = {.name = "axial-resnet",
              .summary = "a ResNet of position-sensitive axial attention: classifies images",
              .source = "Wang et al. 2020, arXiv:2003.07853",
              ATTN__PORTS(keys, inputs, outputs)},
    .size = sizeof(axial_resnet),
    .build = build,
    .forward = forward,
};
