/* SPDX-License-Identifier: MIT
 *
 * Defines residual networks (He et al. 2016). Parameters have torchvision's names. As in torchvision, the 3 x 3
 * convolution of a bottleneck has the stride.
 */
#include "models/resnet_parts.h"

#include "base/context.h"
#include "config/keys.h"
#include "nn/named.h"
#include "tensor/tape_state.h"

#include <math.h>
#include <stdio.h>

const char *const attn__resnet_names[] = {"resnet18", "resnet34", "resnet50", "resnet101", NULL};
const char *const attn__resnet_norms[] = {"frozen", "batch", "group", NULL};
const char *const attn__resnet_stems[] = {"conv", "small", NULL};

/* EXPANSION: the last convolution of a bottleneck has four times the channels of the others */
enum { EXPANSION = 4 };
const int64_t attn__resnet_blocks[][ATTN__RESNET_NAMED_STAGES] = {
    {2, 2, 2, 2}, {3, 4, 6, 3}, {3, 4, 6, 3}, {3, 4, 23, 3}};
static const bool is_bottleneck[] = {false, false, true, true};
static const attn_nn_map_norm_kind norm_kinds[] = {ATTN_NN_NORM_FROZEN, ATTN_NN_NORM_BATCH, ATTN_NN_NORM_GROUP};

/* The settings that all blocks of a network share. */
typedef struct style {
    attn_nn_map_norm_kind norm;
    int64_t groups;
    bool bottleneck;
} style;

typedef struct stage {
    int64_t blocks, width, stride, dilation;
} stage;

/* ------------------------------------------------------------------------------------------------ build */

/* Registers a convolution with the initial values of He et al. 2015. These keep the variance of gradients constant
 * from layer to layer. */
static void conv_init(attn_nn_conv *conv, attn_nn_builder *builder, const char *name, const attn_nn_conv_options *o)
{
    attn_nn_conv_options options = *o;
    double fan = (double)(o->out_channels * o->kernel[0] * o->kernel[1]);
    options.spatial = 2;
    options.fill = (attn_nn_initializer){.start = ATTN_INIT_NORMAL, .scale = sqrt(2 / fan)};
    attn__nn_conv_named(conv, builder, name, &options);
}

static void layer_init(attn__resnet_block *b, attn_nn_builder *builder, const style *s,
                       const attn_nn_conv_options *options)
{
    char conv[16], norm[16];
    int i = b->convs++;
    snprintf(conv, sizeof conv, "conv%d", i + 1);
    snprintf(norm, sizeof norm, "bn%d", i + 1);
    conv_init(&b->conv[i], builder, conv, options);
    attn__nn_map_norm_named(&b->norm[i], builder, norm, s->norm, options->out_channels, s->groups);
}

static attn_nn_conv_options window(int64_t in, int64_t out, int64_t stride, int64_t dilation)
{
    return (attn_nn_conv_options){.in_channels = in,
                                  .out_channels = out,
                                  .kernel = {3, 3},
                                  .stride = {stride, stride},
                                  .padding = {dilation, dilation},
                                  .dilation = dilation};
}

static attn_nn_conv_options pointwise(int64_t in, int64_t out, int64_t stride)
{
    return (attn_nn_conv_options){.in_channels = in, .out_channels = out, .kernel = {1, 1}, .stride = {stride, stride}};
}

/* Registers the parameters of a block. `first` is the dilation of its first 3 x 3 convolution. For the first block
 * of a stage, the caller passes the dilation of the previous stage. */
static void block_init(attn__resnet_block *b, attn_nn_builder *builder, const style *s, const stage *at, int64_t in,
                       int64_t stride, int64_t first)
{
    int64_t width = at->width, out = s->bottleneck ? EXPANSION * width : width;
    b->has_shortcut = stride != 1 || in != out;
    if (s->bottleneck) {
        const attn_nn_conv_options narrow = pointwise(in, width, 1), middle = window(width, width, stride, first),
                                   wide = pointwise(width, out, 1);
        layer_init(b, builder, s, &narrow);
        layer_init(b, builder, s, &middle);
        layer_init(b, builder, s, &wide);
    } else {
        const attn_nn_conv_options one = window(in, width, stride, first), two = window(width, width, 1, at->dilation);
        layer_init(b, builder, s, &one);
        layer_init(b, builder, s, &two);
    }
    if (b->has_shortcut) {
        const attn_nn_conv_options shortcut = pointwise(in, out, stride);
        conv_init(&b->shortcut, builder, "downsample.0", &shortcut);
        attn__nn_map_norm_named(&b->shortcut_norm, builder, "downsample.1", s->norm, out, s->groups);
    }
}

static void stem_init(attn__resnet *r, attn_nn_builder *builder, const attn_config *config, const style *s,
                      int64_t width)
{
    bool small = attn__config_choice(config, "stem", attn__resnet_stems) == 1;
    int64_t side = small ? 3 : 7;
    r->pool = !small;
    conv_init(&r->stem, builder, "conv1",
              &(attn_nn_conv_options){.in_channels = attn_config_int(config, "in_channels", 3),
                                      .out_channels = width,
                                      .kernel = {side, side},
                                      .stride = {2, 2},
                                      .padding = {side / 2, side / 2}});
    attn__nn_map_norm_named(&r->stem_norm, builder, "bn1", s->norm, width, s->groups);
}

/* Returns element i of a setting that is a list. If the setting is a single number, returns `alone`. */
static int64_t number_of(const attn_config_value *value, int i, int64_t alone)
{
    return value->type == ATTN_CONFIG_TYPE_INTS ? value->integers[i] : alone;
}

int64_t attn__resnet_stages(const attn_config *config)
{
    const attn_config_value *blocks = attn_config_get(config, "stage_blocks");
    return !blocks ? ATTN__RESNET_NAMED_STAGES : blocks->type == ATTN_CONFIG_TYPE_INTS ? blocks->n : 1;
}

/* Fills the array `stages` from the config and returns the number of stages. If the lists in the config have
 * different lengths, sets the error and returns 0. */
static int stages_of(stage stages[ATTN__RESNET_STAGES], attn_nn_builder *builder, const attn_config *config, int kind)
{
    const attn_config_value *blocks = attn_config_get(config, "stage_blocks"),
                            *width = attn_config_get(config, "width");
    bool dilation = attn_config_bool(config, "dilation", false), list = width->type == ATTN_CONFIG_TYPE_INTS;
    int64_t n = attn__resnet_stages(config), sum = 0;
    if (n > ATTN__RESNET_STAGES) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT, "%sstage_blocks has %lld stages; at most %d are supported",
                   builder->prefix, (long long)n, (int)ATTN__RESNET_STAGES);
        return 0;
    }
    if (list && width->n != n) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT,
                   "%swidth has %lld numbers, but stage_blocks has %lld; both need one number for each stage",
                   builder->prefix, (long long)width->n, (long long)n);
        return 0;
    }
    for (int i = 0; i < n; i++) {
        bool dilated = dilation && i > 0 && i == n - 1;
        stages[i] = (stage){.blocks = blocks ? number_of(blocks, i, blocks->integer) : attn__resnet_blocks[kind][i],
                            .width = number_of(width, i, width->integer << i),
                            .stride = i == 0 || dilated ? 1 : 2,
                            .dilation = dilated ? 2 : 1};
        sum += stages[i].blocks;
    }
    if (sum > ATTN__RESNET_BLOCKS) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT,
                   "%sstage_blocks has %lld blocks in all; at most %d are supported", builder->prefix, (long long)sum,
                   (int)ATTN__RESNET_BLOCKS);
        return 0;
    }
    return (int)n;
}

/* Marks the parameters of the builder's list from index `begin` on as not trained. */
static void freeze(const attn_nn_builder *builder, int64_t begin)
{
    for (int64_t i = begin; i < builder->parameters->n; i++)
        attn_tensor_set_requires_grad(builder->parameters->items[i].tensor, false);
}

void attn__resnet_build(attn__resnet *r, attn_nn_builder *builder, const attn_config *config, int frozen)
{
    stage stages[ATTN__RESNET_STAGES] = {0};
    int kind = attn__config_choice(config, "backbone", attn__resnet_names);
    int n = stages_of(stages, builder, config, kind);
    const style s = {.norm = norm_kinds[attn__config_choice(config, "norm", attn__resnet_norms)],
                     .groups = attn_config_int(config, "norm_groups", 32),
                     .bottleneck = is_bottleneck[kind]};
    int64_t begin = builder->parameters->n;
    if (n == 0)
        return;
    r->channels = stages[0].width;
    frozen = (int)attn_config_int(config, "frozen_stages", s.norm == ATTN_NN_NORM_FROZEN ? frozen : 0);
    stem_init(r, builder, config, &s, r->channels);
    for (int i = 0; i < n; i++) {
        if (i < frozen)
            freeze(builder, begin);
        for (int64_t j = 0; j < stages[i].blocks; j++) {
            attn_nn_pushf(builder, "layer%d.%d", i + 1, (int)j);
            block_init(&r->block[r->blocks++], builder, &s, &stages[i], r->channels, j == 0 ? stages[i].stride : 1,
                       j == 0 ? 1 : stages[i].dilation);
            attn_nn_pop(builder);
            r->channels = (s.bottleneck ? EXPANSION : 1) * stages[i].width;
        }
    }
    if (n < frozen)
        freeze(builder, begin);
}

/* ---------------------------------------------------------------------------------------------- forward */

static attn_tensor *block_forward(const attn__resnet_block *b, attn_tape *tape, attn_tensor *x)
{
    attn_tensor *y = x;
    int last = b->convs - 1;
    /* If no gradients are recorded, this scope frees the input of each convolution after the convolution. */
    attn_scope_begin(tape);
    for (int i = 0; i < last; i++)
        y = attn_scope_clear(tape, attn_nn_conv_normed(&b->conv[i], &b->norm[i], tape, y, NULL, ATTN_ACTIVATION_RELU));
    y = attn_scope_end(tape, y);
    if (b->has_shortcut)
        x = attn_nn_conv_normed(&b->shortcut, &b->shortcut_norm, tape, x, NULL, ATTN_ACTIVATION_IDENTITY);
    return x ? attn_nn_conv_normed(&b->conv[last], &b->norm[last], tape, y, x, ATTN_ACTIVATION_RELU) : NULL;
}

static attn_tensor *stem_forward(const attn__resnet *r, attn_tape *tape, attn_tensor *x)
{
    x = attn_nn_conv_normed(&r->stem, &r->stem_norm, tape, x, NULL, ATTN_ACTIVATION_RELU);
    return r->pool ? attn_max_pool(tape, x, 2, (int64_t[]){3, 3}, (int64_t[]){2, 2}, (int64_t[]){1, 1}) : x;
}

attn_tensor *attn__resnet_forward(const attn__resnet *r, attn_tape *tape, attn_tensor *x)
{
    attn_scope_begin(tape);
    x = attn_scope_clear(tape, stem_forward(r, tape, x));
    for (int i = 0; i < r->blocks; i++)
        x = attn_scope_clear(tape, block_forward(&r->block[i], tape, x));
    return attn_scope_end(tape, x);
}

/* ------------------------------------------------------------------------------------------ by itself */

typedef struct classifier {
    attn__resnet resnet;
    attn_nn_linear fc;
} classifier;

static const attn_setting keys[] = {
    ATTN__KEYS_RESNET("batch", "parts that are not trained: 1 the stem, 2 the first stage too, and so on; default 0"),
    ATTN__KEY_COUNT("num_classes", "1000", "classes"),
    ATTN__KEY_INIT,
};
static const attn_port inputs[] = {ATTN__PORT("x", "(b,in_channels,h,w)", "images of any size")};
static const attn_port outputs[] = {
    ATTN__PORT("logits", "(b,num_classes)", "one score a class"),
    ATTN__PORT_OPTIONAL("features", "(b,c,y,x)", "what the last stage gives"),
};

static void build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    classifier *m = self;
    attn__resnet_build(&m->resnet, builder, config, 0);
    if (m->resnet.channels > 0) {
        attn__nn_linear_named(&m->fc, builder, "fc", m->resnet.channels, attn_config_int(config, "num_classes", 1000),
                              true);
    }
}

static void forward(const void *self, const attn__call *call)
{
    const classifier *m = self;
    attn_tensor *x = attn__resnet_forward(&m->resnet, call->tape, attn__call_input(call, "x")), *slot;
    if (!x)
        return;
    if (attn__wanted(call, "features", &slot))
        attn__call_output(call, "features", x);
    x = attn_reshape(call->tape, x, 3, (int64_t[]){attn_tensor_length(x, 0), attn_tensor_length(x, 1), -1});
    attn__call_output(call, "logits", attn_nn_linear_forward(&m->fc, call->tape, attn_mean(call->tape, x, 2)));
}

const attn__kind attn__kind_resnet = {
    .about = {.name = "resnet",
              .summary = "a residual network of convolutions: classifies images",
              .source = "He et al. 2016, arXiv:1512.03385",
              ATTN__PORTS(keys, inputs, outputs)},
    .size = sizeof(classifier),
    .build = build,
    .forward = forward,
};
