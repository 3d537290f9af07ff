/* SPDX-License-Identifier: MIT
 *
 * Defines a small network for small pictures. It has three stages, each with convolution, norm, ReLU and pooling, and a
 * head with two linear layers. A non-local block follows each of the first two stages.
 */
#include "models/vision_parts.h"

#include "nn/named.h"

enum { STAGES = 3, HIDDEN = 256 };

static const attn_setting keys[] = {
    {"img_size", ATTN_CONFIG_TYPE_INT, "28", 8, 1 << 16, NULL, "pixels of each side"},
    ATTN__KEY_COUNT("in_channels", "1", "channels of an image"),
    ATTN__KEY_COUNT("num_classes", "10", "classes"),
    ATTN__KEY_PAIRWISE,
    ATTN__KEY_FLAG("sub_sample", "true", "max-pool the keys of the blocks over 2 x 2 positions"),
    ATTN__KEY_FLAG("bn_layer", "true", "batch norm at the end of the blocks"),
    {"dropout", ATTN_CONFIG_TYPE_REAL, "0.5", 0, 0.99, NULL, "share dropped in the head in training"},
    ATTN__KEY_INIT,
};
static const attn_port inputs[] = {ATTN__PORT("x", "(b,in_channels,img_size,img_size)", "images")};
static const attn_port outputs[] = {
    ATTN__PORT("logits", "(b,num_classes)", "one score a class"),
    ATTN__PORT_OPTIONAL("nl_map_1", "(b,n,n_keys)", "the first block's weights"),
    ATTN__PORT_OPTIONAL("nl_map_2", "(b,n,n_keys)", "the second block's weights"),
};

typedef struct network {
    attn_nn_conv conv[STAGES];
    attn_nn_batch_norm norm[STAGES];
    attn_nn_non_local block[STAGES - 1];
    attn_nn_linear fc[2];
    int64_t size; /* side of the picture in pixels */
    double dropout;
} network;

static void build_stage(network *n, attn_nn_builder *builder, int i, int64_t in)
{
    int64_t out = 32 << i;
    attn_nn_pushf(builder, "conv_%d.0", i + 1);
    attn_nn_conv_init(
        &n->conv[i], builder,
        &(attn_nn_conv_options){
            .spatial = 2, .in_channels = in, .out_channels = out, .kernel = {3, 3}, .padding = {1, 1}, .bias = true});
    attn_nn_pop(builder);
    attn_nn_pushf(builder, "conv_%d.1", i + 1);
    attn_nn_batch_norm_init(&n->norm[i], builder, out, false);
    attn_nn_pop(builder);
}

static void build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    network *n = self;
    int64_t in = attn_config_int(config, "in_channels", 1), size = attn_config_int(config, "img_size", 28);
    int64_t side = size / 8;
    n->size = size;
    n->dropout = attn_config_real(config, "dropout", 0.5);
    for (int i = 0; i < STAGES; i++) {
        build_stage(n, builder, i, in);
        in = 32 << i;
        if (i == STAGES - 1)
            break;
        attn_nn_pushf(builder, "nl_%d", i + 1);
        attn_nn_non_local_init(&n->block[i], builder, in, 0, 2, attn__pairwise_of(config),
                               attn_config_bool(config, "sub_sample", true),
                               attn_config_bool(config, "bn_layer", true));
        attn_nn_pop(builder);
    }
    attn__nn_linear_named(&n->fc[0], builder, "fc.0", in * side * side, HIDDEN, true);
    /* the second linear layer has index 3, because fc.1 (ReLU) and fc.2 (dropout) have no parameters */
    attn_nn_push(builder, "fc.3");
    attn_nn_linear_init(&n->fc[1], builder, HIDDEN, attn_config_int(config, "num_classes", 10), true);
    attn_nn_pop(builder);
}

static void forward(const void *self, const attn__call *call)
{
    static const char *const names[] = {"nl_map_1", "nl_map_2"};
    const network *n = self;
    attn_tape *tape = call->tape;
    attn_tensor *x = attn__call_input(call, "x");
    if (!attn__images_fit(tape, "non-local-net", x, n->size, n->size, ""))
        return;
    for (int i = 0; i < STAGES; i++) {
        attn_tensor *map = NULL;
        x = attn_nn_batch_norm_forward(&n->norm[i], tape, attn_nn_conv_forward(&n->conv[i], tape, x));
        x = attn_max_pool(tape, attn_activate(tape, x, ATTN_ACTIVATION_RELU), 2, (int64_t[]){2, 2}, NULL, NULL);
        if (x && i < STAGES - 1) {
            x = attn_nn_non_local_forward(&n->block[i], tape, x, attn__wanted(call, names[i], &map));
            attn__call_output(call, names[i], map);
        }
    }
    if (x) {
        const int64_t *shape = attn_tensor_shape(x);
        x = attn_reshape(tape, x, 2, (int64_t[]){shape[0], shape[1] * shape[2] * shape[3]});
        x = attn_linear(tape, x, n->fc[0].weight, n->fc[0].bias, ATTN_ACTIVATION_RELU);
        attn__call_output(call, "logits", attn_nn_linear_forward(&n->fc[1], tape, attn_dropout(tape, x, n->dropout)));
    }
}

const attn__kind attn__kind_non_local_net = {
    .about = {.name = "non-local-net",
              .summary = "a small convolutional network with two non-local blocks: classifies small pictures",
              .source = "Wang et al. 2018, arXiv:1711.07971; AlexHex7's network for MNIST",
              ATTN__PORTS(keys, inputs, outputs)},
    .size = sizeof(network),
    .build = build,
    .forward = forward,
};
