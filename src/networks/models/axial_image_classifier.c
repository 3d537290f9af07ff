/* SPDX-License-Identifier: MIT
 *
 * Defines an image classifier that contains the axial image transformer. The image is cut into patches, the
 * transformer's blocks run on the patches with learned positions, and a linear head reads the mean over all patches. If
 * the blocks are reversible, the memory of a training step does not depend on the depth. The parameters of the blocks
 * have the same names with and without the classifier, so weights can be exchanged between both. */
#include "base/context.h"
#include "config/keys.h"
#include "models/axial_image.h"
#include "models/vision_parts.h"
#include "nn/named.h"
#include "tensor/tape_state.h"

static const attn_setting keys[] = {
    {"img_size", ATTN_CONFIG_TYPE_INTS, "28", 1, 1 << 30, NULL, "pixels of each side, or [height, width]"},
    {"patch_size", ATTN_CONFIG_TYPE_INTS, "4", 1, 1 << 30, NULL, "pixels of each side of a patch, or [height, width]"},
    ATTN__KEY_COUNT("in_channels", "1", "channels of an image"),
    ATTN__KEY_COUNT("dim", "32", "channels of a patch; heads divides it"),
    {"depth", ATTN_CONFIG_TYPE_INT, "4", 1, ATTN__MAX_BLOCKS, NULL, "blocks of attention and convolutions"},
    ATTN__KEY_COUNT("heads", "4", "attention heads"),
    ATTN__KEY_FLAG("reversible", "true", "train in memory that does not grow with depth; computes another function"),
    ATTN__KEY_DROPOUT,
    ATTN__KEY_COUNT("num_classes", "10", "classes"),
    ATTN__KEY_INIT,
};
static const attn_port inputs[] = {ATTN__PORT("x", "(b,in_channels,h,w)", "images of img_size")};
static const attn_port outputs[] = {
    ATTN__PORT("logits", "(b,num_classes)", "one score a class"),
    ATTN__PORT_OPTIONAL("weights", "(depth,b,heads,y,x,y+x)",
                        "of each patch over its column, then over its row; takes the memory of all layers"),
};

typedef struct classifier {
    attn_nn_conv patches;
    attn__axial_image stack;
    attn_nn_linear head;
    int64_t size[2], grid[2]; /* size: height and width of the picture in pixels; grid: in patches */
} classifier;

static void build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    classifier *c = self;
    int64_t patch[2], dim = attn_config_int(config, "dim", 0);
    if (!attn__patches_fit(c->size, patch, c->grid, builder, config, "axial-image-classifier"))
        return;
    attn_nn_push(builder, "patch_embedding");
    attn_nn_patches_init(&c->patches, builder, attn_config_int(config, "in_channels", 0), dim, patch[0], patch[1]);
    attn_nn_pop(builder);
    attn__axial_image_build(&c->stack, builder, config, c->grid);
    attn__nn_linear_named(&c->head, builder, "head", dim, attn_config_int(config, "num_classes", 0), true);
}

static void forward(const void *self, const attn__call *call)
{
    const classifier *c = self;
    attn_tape *tape = call->tape;
    attn_tensor *weights = NULL, *x = attn__call_input(call, "x");
    if (!attn__images_fit(tape, "axial-image-classifier", x, c->size[0], c->size[1], ""))
        return;
    bool keep = attn__wanted(call, "weights", &weights) != NULL;
    x = attn_nn_patches_forward(&c->patches, tape, x);
    if (!x)
        return;
    int64_t batch = attn_tensor_length(x, 0), dim = attn_tensor_length(x, 2), patches = c->grid[0] * c->grid[1];
    x = attn_permute(tape, attn_reshape(tape, x, 4, (int64_t[]){batch, c->grid[0], c->grid[1], dim}),
                     (int[]){0, 3, 1, 2});
    x = attn__axial_image_forward(&c->stack, tape, x, keep ? &weights : NULL);
    x = attn_mean(tape, attn_reshape(tape, x, 3, (int64_t[]){batch, dim, patches}), 2);
    attn__call_output(call, "logits", attn_nn_linear_forward(&c->head, tape, x));
    if (keep)
        attn__call_output(call, "weights", weights);
}

const attn__kind attn__kind_axial_image_classifier = {
    .about = {.name = "axial-image-classifier",
              .summary = "the axial image transformer behind patches and in front of a linear head: classifies images",
              .source = "Ho et al. 2019, arXiv:1912.12180; lucidrains/axial-attention; Gomez et al. 2017, "
                        "arXiv:1707.04585",
              ATTN__PORTS(keys, inputs, outputs)},
    .size = sizeof(classifier),
    .build = build,
    .forward = forward,
};
