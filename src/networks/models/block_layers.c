/* SPDX-License-Identifier: MIT
 *
 * Defines the parts of the Transformer and of the Vision Transformer as layers of their own: blocks of encoder and
 * decoder, feed-forward networks, residual connections with a norm, and the projection of patches.
 */
#include "models/vision_parts.h"

#include "base/context.h"
#include "nn/named.h"

static const attn_port x_input[] = {ATTN__PORT("x", "(b,t,num_hiddens)", "")};
static const attn_port masked_inputs[] = {ATTN__PORT("x", "(b,t,num_hiddens)", ""), ATTN__PORT_LENS("(b) or (b,t)")};
static const attn_port weighted_outputs[] = {ATTN__PORT("out", "(b,t,num_hiddens)", ""),
                                             ATTN__PORT_OPTIONAL("weights", "(b,num_heads,t,t)", "attention weights")};

static attn_nn_mask mask_of(const attn__call *call, double fill)
{
    return (attn_nn_mask){.valid_lens = attn__call_input(call, "valid_lens"), .fill = fill};
}

/* ------------------------------------------------------------------------- blocks of the Transformer */

static const attn_setting block_keys[] = {
    ATTN__KEY_COUNT("num_hiddens", NULL, "channels; num_heads divides it"),
    ATTN__KEY_COUNT("ffn_num_hiddens", NULL, "channels inside the feed-forward network"),
    ATTN__KEY_COUNT("num_heads", NULL, "attention heads"),
    ATTN__KEY_DROPOUT,
    ATTN__KEY_FLAG("use_bias", "false", "biases of the attention's projections"),
    ATTN__KEY_FILL,
    ATTN__KEY_INIT,
};

static attn_nn_block_options block_options(const attn_config *config)
{
    return (attn_nn_block_options){.hidden = attn_config_int(config, "num_hiddens", 0),
                                   .ffn_hidden = attn_config_int(config, "ffn_num_hiddens", 0),
                                   .heads = attn_config_int(config, "num_heads", 0),
                                   .dropout = attn_config_real(config, "dropout", 0),
                                   .bias = attn_config_bool(config, "use_bias", false)};
}

typedef struct encoder_block {
    attn_nn_encoder_block block;
    double fill;
} encoder_block;

static void encoder_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    encoder_block *e = self;
    attn_nn_block_options options = block_options(config);
    e->fill = attn_config_real(config, "mask_fill", 0);
    attn_nn_encoder_block_init(&e->block, builder, &options);
}

static void encoder_forward(const void *self, const attn__call *call)
{
    const encoder_block *e = self;
    attn_nn_mask mask = mask_of(call, e->fill);
    attn_tensor *weights = NULL, **wanted = attn__wanted(call, "weights", &weights);
    attn__call_output(
        call, "out",
        attn_nn_encoder_block_forward(&e->block, call->tape, attn__call_input(call, "x"), NULL, &mask, wanted));
    attn__call_output(call, "weights", weights);
}

const attn__kind attn__kind_transformer_encoder_block = {
    .about = {.name = "transformer-encoder-block",
              .summary = "one block of the Transformer's encoder: self-attention and a feed-forward network",
              .source = "Vaswani et al. 2017, arXiv:1706.03762; Dive into Deep Learning, 11.7",
              ATTN__PORTS(block_keys, masked_inputs, weighted_outputs)},
    .size = sizeof(encoder_block),
    .build = encoder_build,
    .forward = encoder_forward,
};

typedef struct decoder_block {
    attn_nn_decoder_block block;
    double fill;
} decoder_block;

static const attn_port decoder_inputs[] = {
    ATTN__PORT("x", "(b,t,num_hiddens)", ""),
    ATTN__PORT("enc_outputs", "(b,s,num_hiddens)", "the encoder's output"),
    {"valid_lens", "(b)", true, true, "the encoder's places at or past the length take no part; left out: all do"},
};
static const attn_port decoder_outputs[] = {
    ATTN__PORT("out", "(b,t,num_hiddens)", ""),
    ATTN__PORT_OPTIONAL("self_weights", "(b,num_heads,t,t)", "weights of the causal self-attention"),
    ATTN__PORT_OPTIONAL("cross_weights", "(b,num_heads,t,s)", "weights of the attention to the encoder"),
};

static void decoder_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    decoder_block *d = self;
    attn_nn_block_options options = block_options(config);
    d->fill = attn_config_real(config, "mask_fill", 0);
    attn_nn_decoder_block_init(&d->block, builder, &options);
}

static void decoder_forward(const void *self, const attn__call *call)
{
    const decoder_block *d = self;
    attn_nn_mask own = {.causal = ATTN_CAUSAL_TOP_LEFT, .fill = d->fill}, cross = mask_of(call, d->fill);
    attn_tensor *self_weights = NULL, **own_wanted = attn__wanted(call, "self_weights", &self_weights);
    attn_tensor *cross_weights = NULL, **cross_wanted = attn__wanted(call, "cross_weights", &cross_weights);
    attn_tensor *x = attn__call_input(call, "x"), *encoded = attn__call_input(call, "enc_outputs");
    attn__call_output(
        call, "out",
        attn_nn_decoder_block_forward(&d->block, call->tape, x, encoded, NULL, &own, &cross, own_wanted, cross_wanted));
    attn__call_output(call, "self_weights", self_weights);
    attn__call_output(call, "cross_weights", cross_weights);
}

const attn__kind attn__kind_transformer_decoder_block = {
    .about = {.name = "transformer-decoder-block",
              .summary = "one block of the Transformer's decoder: causal self-attention, attention to an encoder and a "
                         "feed-forward network",
              .source = "Vaswani et al. 2017, arXiv:1706.03762; Dive into Deep Learning, 11.7",
              ATTN__PORTS(block_keys, decoder_inputs, decoder_outputs)},
    .size = sizeof(decoder_block),
    .build = decoder_build,
    .forward = decoder_forward,
};

/* -------------------------------------------------------------------------- feed-forward networks */

typedef struct network {
    attn_nn_ffn layers;
    double dropout; /* of the result */
} network;

static void network_init(network *n, attn_nn_builder *builder, const attn_config *config, const char *inner,
                         const char *outer)
{
    int64_t out = attn_config_int(config, outer, 0);
    attn_nn_ffn_init(&n->layers, builder, attn_config_int(config, "num_hiddens", out),
                     attn_config_int(config, inner, 0), out);
}

static void network_forward(const void *self, const attn__call *call)
{
    const network *n = self;
    attn_tensor *y = attn_nn_ffn_forward(&n->layers, call->tape, attn__call_input(call, "x"));
    attn__call_output(call, "out", attn_dropout(call->tape, y, n->dropout));
}

static void ffn_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    network_init(self, builder, config, "ffn_num_hiddens", "ffn_num_outputs");
}

static void mlp_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    network *n = self;
    network_init(n, builder, config, "mlp_num_hiddens", "mlp_num_outputs");
    n->layers.activation = ATTN_ACTIVATION_GELU_ERF;
    n->layers.dropout = n->dropout = attn_config_real(config, "dropout", 0);
}

static const attn_setting ffn_keys[] = {
    ATTN__KEY_COUNT("ffn_num_hiddens", NULL, "channels between the two layers"),
    ATTN__KEY_COUNT("ffn_num_outputs", NULL, "channels of the result"),
    ATTN__KEY_COUNT("num_hiddens", "", "channels of x; default ffn_num_outputs"),
    ATTN__KEY_INIT,
};
static const attn_setting mlp_keys[] = {
    ATTN__KEY_COUNT("mlp_num_hiddens", NULL, "channels between the two layers"),
    ATTN__KEY_COUNT("mlp_num_outputs", NULL, "channels of the result"),
    ATTN__KEY_COUNT("num_hiddens", "", "channels of x; default mlp_num_outputs"),
    {"dropout", ATTN_CONFIG_TYPE_REAL, "0.5", 0, 0.99, NULL,
     "share dropped in training, behind each of the two layers"},
    ATTN__KEY_INIT,
};
static const attn_port ffn_outputs[] = {ATTN__PORT("out", "(b,t,ffn_num_outputs)", "")};
static const attn_port mlp_outputs[] = {ATTN__PORT("out", "(b,t,mlp_num_outputs)", "")};

const attn__kind attn__kind_position_wise_ffn = {
    .about = {.name = "position-wise-ffn",
              .summary = "two linear layers with ReLU between them, applied to each position alone",
              .source = "Vaswani et al. 2017, arXiv:1706.03762; Dive into Deep Learning, 11.7",
              ATTN__PORTS(ffn_keys, x_input, ffn_outputs)},
    .size = sizeof(network),
    .build = ffn_build,
    .forward = network_forward,
};

const attn__kind attn__kind_vit_mlp = {
    .about = {.name = "vit-mlp",
              .summary = "two linear layers with GELU between them, each followed by dropout",
              .source = "Dosovitskiy et al. 2021, arXiv:2010.11929; Dive into Deep Learning, 11.8",
              ATTN__PORTS(mlp_keys, x_input, mlp_outputs)},
    .size = sizeof(network),
    .build = mlp_build,
    .forward = network_forward,
};

/* ---------------------------------------------------------------------- residual connection and norm */

static void add_norm_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    attn_nn_add_norm_init(self, builder, attn_config_int(config, "norm_shape", 0),
                          attn_config_real(config, "dropout", 0));
}

static void add_norm_forward(const void *self, const attn__call *call)
{
    attn_tensor *x = attn__call_input(call, "x"), *y = attn__call_input(call, "y");
    attn__call_output(call, "out", attn_nn_add_norm_forward(self, call->tape, x, y));
}

static const attn_setting add_norm_keys[] = {ATTN__KEY_COUNT("norm_shape", NULL, "channels"), ATTN__KEY_DROPOUT};
static const attn_port add_norm_inputs[] = {ATTN__PORT("x", "(b,t,norm_shape)", ""),
                                            ATTN__PORT("y", "(b,t,norm_shape)", "a layer's result, which is dropped")};
static const attn_port add_norm_outputs[] = {ATTN__PORT("out", "(b,t,norm_shape)", "")};

const attn__kind attn__kind_add_norm = {
    .about = {.name = "add-norm",
              .summary = "a residual connection followed by a layer norm",
              .source = "Vaswani et al. 2017, arXiv:1706.03762; Dive into Deep Learning, 11.7",
              ATTN__PORTS(add_norm_keys, add_norm_inputs, add_norm_outputs)},
    .size = sizeof(attn_nn_add_norm),
    .build = add_norm_build,
    .forward = add_norm_forward,
};

/* -------------------------------------------------------------------------------------- batch norm */

static void batch_norm_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    attn_nn_batch_norm *norm = self;
    attn_nn_batch_norm_init(norm, builder, attn_config_int(config, "num_features", 0), false);
    norm->eps = attn_config_real(config, "eps", 0);
    norm->momentum = attn_config_real(config, "momentum", 0);
}

static void batch_norm_forward(const void *self, const attn__call *call)
{
    attn__call_output(call, "out", attn_nn_batch_norm_forward(self, call->tape, attn__call_input(call, "x")));
}

static const attn_setting batch_norm_keys[] = {
    ATTN__KEY_COUNT("num_features", NULL, "channels"),
    {"eps", ATTN_CONFIG_TYPE_REAL, "1e-5", 1e-30, 1, NULL, "added to the variance"},
    {"momentum", ATTN_CONFIG_TYPE_REAL, "0.1", 0, 1, NULL, "share of the batch in the running statistics"},
};
static const attn_port batch_norm_inputs[] = {ATTN__PORT("x", "(b,num_features,spatial...)", "")};
static const attn_port batch_norm_outputs[] = {ATTN__PORT("out", "(b,num_features,spatial...)", "")};

const attn__kind attn__kind_batch_norm = {
    .about = {.name = "batch-norm",
              .summary = "a norm of each channel over the batch and all positions",
              .source = "Ioffe and Szegedy 2015, arXiv:1502.03167; Dive into Deep Learning, 11.7",
              ATTN__PORTS(batch_norm_keys, batch_norm_inputs, batch_norm_outputs)},
    .size = sizeof(attn_nn_batch_norm),
    .build = batch_norm_build,
    .forward = batch_norm_forward,
};

/* ----------------------------------------------------------------- parts of the Vision Transformer */

static void patches_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    int64_t size[2], patch[2], grid[2];
    if (attn__patches_fit(size, patch, grid, builder, config, "patch-embedding")) {
        attn_nn_patches_init(self, builder, attn_config_int(config, "in_channels", 0),
                             attn_config_int(config, "num_hiddens", 0), patch[0], patch[1]);
    }
}

static void patches_forward(const void *self, const attn__call *call)
{
    attn__call_output(call, "out", attn_nn_patches_forward(self, call->tape, attn__call_input(call, "x")));
}

static const attn_setting patches_keys[] = {
    {"img_size", ATTN_CONFIG_TYPE_INTS, "96", 1, 1 << 30, NULL,
     "pixels of each side, or [height, width]; other images give another number of patches"},
    {"patch_size", ATTN_CONFIG_TYPE_INTS, "16", 1, 1 << 30, NULL, "pixels of each side of a patch, or [height, width]"},
    ATTN__KEY_COUNT("num_hiddens", "512", "channels of a patch"),
    ATTN__KEY_COUNT("in_channels", "3", "channels of an image"),
    ATTN__KEY_INIT,
};
static const attn_port patches_inputs[] = {ATTN__PORT("x", "(b,in_channels,h,w)", "images")};
static const attn_port patches_outputs[] = {ATTN__PORT("out", "(b,patches,num_hiddens)", "patches row by row")};

const attn__kind attn__kind_patch_embedding = {
    .about = {.name = "patch-embedding",
              .summary = "the patches of an image, each projected to a vector",
              .source = "Dosovitskiy et al. 2021, arXiv:2010.11929; Dive into Deep Learning, 11.8",
              ATTN__PORTS(patches_keys, patches_inputs, patches_outputs)},
    .size = sizeof(attn_nn_conv),
    .build = patches_build,
    .forward = patches_forward,
};

typedef struct vit_block {
    attn_nn_vit_block block;
    double fill;
} vit_block;

static void vit_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    vit_block *v = self;
    int64_t hidden = attn_config_int(config, "num_hiddens", 0), normed = attn_config_int(config, "norm_shape", hidden);
    if (normed != hidden) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT,
                   "vit-block: norm_shape is %lld; it must be equal to num_hiddens, %lld", (long long)normed,
                   (long long)hidden);
        return;
    }
    v->fill = attn_config_real(config, "mask_fill", 0);
    attn_nn_vit_block_init(&v->block, builder,
                           &(attn_nn_vit_block_options){.hidden = hidden,
                                                        .mlp_hidden = attn_config_int(config, "mlp_num_hiddens", 0),
                                                        .heads = attn_config_int(config, "num_heads", 0),
                                                        .activation = ATTN_ACTIVATION_GELU_ERF,
                                                        .dropout = attn_config_real(config, "dropout", 0),
                                                        .bias = attn_config_bool(config, "use_bias", false)});
}

static void vit_forward(const void *self, const attn__call *call)
{
    const vit_block *v = self;
    attn_nn_mask mask = mask_of(call, v->fill);
    attn_tensor *weights = NULL, **wanted = attn__wanted(call, "weights", &weights);
    attn__call_output(call, "out",
                      attn_nn_vit_block_forward(&v->block, call->tape, attn__call_input(call, "x"), &mask, wanted));
    attn__call_output(call, "weights", weights);
}

static const attn_setting vit_keys[] = {
    ATTN__KEY_COUNT("num_hiddens", NULL, "channels; num_heads divides it"),
    ATTN__KEY_COUNT("norm_shape", "", "channels of the norms: those of num_hiddens, the default"),
    ATTN__KEY_COUNT("mlp_num_hiddens", NULL, "channels inside the feed-forward network"),
    ATTN__KEY_COUNT("num_heads", NULL, "attention heads"),
    ATTN__KEY_DROPOUT,
    ATTN__KEY_FLAG("use_bias", "false", "biases of the attention's projections"),
    ATTN__KEY_FILL,
    ATTN__KEY_INIT,
};

const attn__kind attn__kind_vit_block = {
    .about = {.name = "vit-block",
              .summary = "one block of the Vision Transformer: a norm before the attention and before the MLP",
              .source = "Dosovitskiy et al. 2021, arXiv:2010.11929; Dive into Deep Learning, 11.8",
              ATTN__PORTS(vit_keys, masked_inputs, weighted_outputs)},
    .size = sizeof(vit_block),
    .build = vit_build,
    .forward = vit_forward,
};
