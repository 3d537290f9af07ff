/* SPDX-License-Identifier: MIT
 *
 * Defines the Vision Transformer: patches, a class token, learned positions, blocks, and a head that reads the class
 * token.
 */
#include "models/vision_parts.h"

#include "nn/named.h"
#include "tensor/tape_state.h"

#include <string.h>

/* Names of activations in configs of Hugging Face. There, "gelu" means the exact form. */
static const char *const activations[] = {"gelu", "gelu_new", "gelu_pytorch_tanh", "quick_gelu", "relu", NULL};
static const attn_activation kinds[] = {ATTN_ACTIVATION_GELU_ERF, ATTN_ACTIVATION_GELU_TANH, ATTN_ACTIVATION_GELU_TANH,
                                        ATTN_ACTIVATION_GELU_SIGMOID, ATTN_ACTIVATION_RELU};

static const attn_setting keys[] = {
    {"img_size", ATTN_CONFIG_TYPE_INTS, "96", 1, 1 << 30, NULL, "pixels of each side, or [height, width]"},
    {"patch_size", ATTN_CONFIG_TYPE_INTS, "16", 1, 1 << 30, NULL, "pixels of each side of a patch, or [height, width]"},
    ATTN__KEY_COUNT("num_hiddens", "512", "channels; num_heads divides it"),
    ATTN__KEY_COUNT("mlp_num_hiddens", "2048", "channels inside the feed-forward network"),
    ATTN__KEY_COUNT("num_heads", "8", "attention heads"),
    {"num_blks", ATTN_CONFIG_TYPE_INT, "2", 0, ATTN__MAX_BLOCKS, NULL, "blocks"},
    {"emb_dropout", ATTN_CONFIG_TYPE_REAL, "0", 0, 0.99, NULL, "share of the embedding dropped in training"},
    {"blk_dropout", ATTN_CONFIG_TYPE_REAL, "0", 0, 0.99, NULL, "share dropped inside the blocks in training"},
    ATTN__KEY_FLAG("use_bias", "false", "biases of the attention's projections"),
    ATTN__KEY_COUNT("num_classes", "10", "classes"),
    ATTN__KEY_COUNT("in_channels", "3", "channels of an image"),
    {"layer_norm_eps", ATTN_CONFIG_TYPE_REAL, "1e-5", 1e-30, 1, NULL, "of the norms"},
    {"hidden_act", ATTN_CONFIG_TYPE_TEXT, "gelu", 0, 0, activations,
     "between the two layers of a feed-forward network"},
    ATTN__KEY_FLAG("interpolate_positions", "false",
                   "take images of other sizes, for which the positions are interpolated (bicubic)"),
    ATTN__KEY_INIT,
};
static const attn_port inputs[] = {ATTN__PORT("x", "(b,in_channels,h,w)", "images of img_size")};
static const attn_port outputs[] = {
    ATTN__PORT("logits", "(b,num_classes)", "one score a class"),
    ATTN__PORT_OPTIONAL("weights", "(num_blks,b,num_heads,1+n,1+n)", "attention, class token first, then patches"),
};

typedef struct vit {
    attn_nn_conv patches;
    attn_tensor *cls_token, *positions;
    attn_nn_vit_block block[ATTN__MAX_BLOCKS];
    attn_nn_layer_norm norm;
    attn_nn_linear head;
    /* Height and width of the images for which the positions are made: size in pixels, grid in patches. */
    int64_t size[2], grid[2];
    int blocks;
    double dropout;
    bool interpolate;
} vit;

static attn_nn_vit_block_options block_options(const attn_config *config)
{
    return (attn_nn_vit_block_options){
        .hidden = attn_config_int(config, "num_hiddens", 0),
        .mlp_hidden = attn_config_int(config, "mlp_num_hiddens", 0),
        .heads = attn_config_int(config, "num_heads", 0),
        .activation = kinds[attn__config_choice(config, "hidden_act", activations)],
        .dropout = attn_config_real(config, "blk_dropout", 0),
        .eps = attn_config_real(config, "layer_norm_eps", 1e-5),
        .bias = attn_config_bool(config, "use_bias", false),
    };
}

static void build_embedding(vit *v, attn_nn_builder *builder, const attn_config *config, int64_t hidden)
{
    int64_t patch[2];
    /* Positions have variance 1 with the policy of Dive into Deep Learning. Otherwise their standard deviation is
     * 0.02, as in the paper, because such small values train better. */
    double spread = builder->policy == ATTN_POLICY_TORCH ? 1 : 0.02;
    if (!attn__patches_fit(v->size, patch, v->grid, builder, config, "vit"))
        return;
    attn_nn_push(builder, "patch_embedding");
    attn_nn_patches_init(&v->patches, builder, attn_config_int(config, "in_channels", 0), hidden, patch[0], patch[1]);
    attn_nn_pop(builder);
    v->cls_token = attn_nn_parameter(builder, "cls_token", 3, (int64_t[]){1, 1, hidden},
                                     (attn_nn_initializer){.start = ATTN_INIT_ZEROS});
    v->positions = attn_nn_parameter(builder, "pos_embedding", 3, (int64_t[]){1, 1 + v->grid[0] * v->grid[1], hidden},
                                     (attn_nn_initializer){.start = ATTN_INIT_NORMAL, .scale = spread});
}

static void build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    vit *v = self;
    attn_nn_vit_block_options options = block_options(config);
    v->blocks = (int)attn_config_int(config, "num_blks", 0);
    v->dropout = attn_config_real(config, "emb_dropout", 0);
    v->interpolate = attn_config_bool(config, "interpolate_positions", false);
    build_embedding(v, builder, config, options.hidden);
    for (int i = 0; i < v->blocks; i++) {
        attn_nn_pushf(builder, "blks.%d", i);
        attn_nn_vit_block_init(&v->block[i], builder, &options);
        attn_nn_pop(builder);
    }
    attn__nn_layer_norm_named(&v->norm, builder, "head.0", options.hidden, options.eps);
    attn__nn_linear_named(&v->head, builder, "head.1", options.hidden, attn_config_int(config, "num_classes", 0), true);
}

/* -------------------------------------------------------------------------------------------- positions */

/* Returns the positions for a grid of rows x cols patches. If the grid differs from the model's own grid, the
 * positions of patches are interpolated. The class token's position stays the same. */
static attn_tensor *positions_for(const vit *v, attn_tape *tape, int64_t rows, int64_t cols)
{
    if (rows == v->grid[0] && cols == v->grid[1])
        return v->positions;
    int64_t hidden = attn_tensor_length(v->positions, 2);
    attn_tensor *first = attn_slice(tape, v->positions, 1, 0, 1);
    attn_tensor *map = attn_slice(tape, v->positions, 1, 1, 1 + v->grid[0] * v->grid[1]);
    map = attn_reshape(tape, map, 4, (int64_t[]){1, v->grid[0], v->grid[1], hidden});
    map = attn_interpolate(tape, attn_interpolate(tape, map, 1, rows, ATTN_INTERPOLATE_CUBIC), 2, cols,
                           ATTN_INTERPOLATE_CUBIC);
    map = attn_reshape(tape, map, 3, (int64_t[]){1, rows * cols, hidden});
    return attn_concat(tape, (attn_tensor *[]){first, map}, 2, 1);
}

/* [B,1+N,D] */
static attn_tensor *embed(const vit *v, attn_tape *tape, attn_tensor *x)
{
    if (!v->interpolate && !attn__images_fit(tape, "vit", x, v->size[0], v->size[1],
                                             "; interpolate_positions=true would fit the positions"))
        return NULL;
    attn_tensor *patches = attn_nn_patches_forward(&v->patches, tape, x);
    if (!patches)
        return NULL;
    int64_t batch = attn_tensor_length(x, 0), high = attn_tensor_length(v->patches.weight, 2);
    int64_t wide = attn_tensor_length(v->patches.weight, 3), hidden = attn_tensor_length(patches, 2);
    attn_tensor *none = attn_tape_tensor(tape, attn_tensor_dtype(x), 3, (int64_t[]){batch, 1, hidden}, NULL);
    attn_tensor *tokens = attn_concat(tape, (attn_tensor *[]){attn_add(tape, none, v->cls_token), patches}, 2, 1);
    attn_tensor *places = positions_for(v, tape, attn_tensor_length(x, 2) / high, attn_tensor_length(x, 3) / wide);
    return attn_dropout(tape, attn_add(tape, tokens, places), v->dropout);
}

static void forward(const void *self, const attn__call *call)
{
    const vit *v = self;
    attn_tape *tape = call->tape;
    attn_named_list maps = {.context = attn_tape_context(tape)};
    attn_tensor *wanted = NULL, *y = embed(v, tape, attn__call_input(call, "x"));
    bool keep = attn__wanted(call, "weights", &wanted) != NULL;
    for (int i = 0; y && i < v->blocks; i++) {
        attn_tensor *map = NULL;
        attn__block_begin(tape, keep);
        y = attn__block_end(tape, keep, attn_nn_vit_block_forward(&v->block[i], tape, y, NULL, keep ? &map : NULL));
        attn__weights_add(&maps, "weights", i, map);
    }
    if (y) { /* only the class token is normalized, because the head reads only this token */
        y = attn_reshape(tape, attn_slice(tape, y, 1, 0, 1), 2,
                         (int64_t[]){attn_tensor_length(y, 0), attn_tensor_length(y, 2)});
        y = attn_nn_layer_norm_forward(&v->norm, tape, y);
        attn__call_output(call, "logits", attn_nn_linear_forward(&v->head, tape, y));
    }
    if (keep && y)
        attn__call_output(call, "weights", attn__stack(tape, &maps, "weights"));
    attn_named_clear(&maps);
}

const attn__kind attn__kind_vit = {
    .about = {.name = "vit",
              .summary = "the Vision Transformer: classifies images",
              .source = "Dosovitskiy et al. 2021, arXiv:2010.11929; Dive into Deep Learning, 11.8",
              ATTN__PORTS(keys, inputs, outputs)},
    .size = sizeof(vit),
    .build = build,
    .forward = forward,
};
