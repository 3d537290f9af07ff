/* SPDX-License-Identifier: MIT
 *
 * Defines an image classifier with axial attention. The image is cut into patches, which get a position for their row
 * and one for their column. Blocks attend along rows and along columns in turn. The head reads the mean over all
 * patches. For N patches on a square grid, a Vision Transformer compares N^2 pairs of patches, but this model compares
 * N^1.5. Two successive blocks still connect every pair of patches. */
#include "models/vision_parts.h"

#include "nn/axial.h"
#include "nn/named.h"
#include "tensor/tape_state.h"

static const attn_setting keys[] = {
    {"img_size", ATTN_CONFIG_TYPE_INTS, "28", 1, 1 << 30, NULL, "pixels of each side, or [height, width]"},
    {"patch_size", ATTN_CONFIG_TYPE_INTS, "2", 1, 1 << 30, NULL, "pixels of each side of a patch, or [height, width]"},
    ATTN__KEY_COUNT("in_channels", "1", "channels of an image"),
    ATTN__KEY_COUNT("num_hiddens", "64", "channels; num_heads divides it"),
    ATTN__KEY_COUNT("mlp_num_hiddens", "128", "channels inside the feed-forward networks"),
    ATTN__KEY_COUNT("num_heads", "4", "attention heads"),
    {"num_blks", ATTN_CONFIG_TYPE_INT, "4", 1, ATTN__MAX_BLOCKS, NULL, "blocks, each of a row and a column part"},
    ATTN__KEY_DROPOUT,
    ATTN__KEY_COUNT("num_classes", "10", "classes"),
    ATTN__KEY_INIT,
};
static const attn_port inputs[] = {ATTN__PORT("x", "(b,in_channels,h,w)", "images of img_size")};
static const attn_port outputs[] = {
    ATTN__PORT("logits", "(b,num_classes)", "one score a class"),
    ATTN__PORT_OPTIONAL("rows", "(num_blks,b*y,num_heads,x,x)", "attention along each row of patches"),
    ATTN__PORT_OPTIONAL("columns", "(num_blks,b*x,num_heads,y,y)", "attention along each column of patches"),
};

enum { ROWS, COLUMNS, AXES };

typedef struct network {
    attn_nn_conv patches;
    attn_nn_axial_positions positions;
    attn_nn_vit_block block[ATTN__MAX_BLOCKS][AXES];
    attn_nn_layer_norm norm;
    attn_nn_linear head;
    int64_t size[2], grid[2]; /* size: height and width of the picture in pixels; grid: in patches */
    int blocks;
} network;

static void build_embedding(network *n, attn_nn_builder *builder, const attn_config *config, int64_t hidden)
{
    int64_t patch[2];
    if (!attn__patches_fit(n->size, patch, n->grid, builder, config, "axial-classifier"))
        return;
    attn_nn_push(builder, "patch_embedding");
    attn_nn_patches_init(&n->patches, builder, attn_config_int(config, "in_channels", 0), hidden, patch[0], patch[1]);
    attn_nn_pop(builder);
    attn_nn_push(builder, "positions");
    attn_nn_axial_positions_init(&n->positions, builder, hidden, 2, n->grid, 3, ATTN_POSITIONS_EXACT);
    attn_nn_pop(builder);
}

static void build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    static const char *const names[AXES] = {"rows", "columns"};
    network *n = self;
    int64_t hidden = attn_config_int(config, "num_hiddens", 0);
    attn_nn_vit_block_options options = {.hidden = hidden,
                                         .mlp_hidden = attn_config_int(config, "mlp_num_hiddens", 0),
                                         .heads = attn_config_int(config, "num_heads", 0),
                                         .activation = ATTN_ACTIVATION_GELU_ERF,
                                         .dropout = attn_config_real(config, "dropout", 0),
                                         .eps = 1e-5};
    n->blocks = (int)attn_config_int(config, "num_blks", 0);
    build_embedding(n, builder, config, hidden);
    for (int i = 0; i < n->blocks; i++) {
        for (int axis = 0; axis < AXES; axis++) {
            attn_nn_pushf(builder, "blks.%d.%s", i, names[axis]);
            attn_nn_vit_block_init(&n->block[i][axis], builder, &options);
            attn_nn_pop(builder);
        }
    }
    attn__nn_layer_norm_named(&n->norm, builder, "head.0", hidden, 1e-5);
    attn__nn_linear_named(&n->head, builder, "head.1", hidden, attn_config_int(config, "num_classes", 0), true);
}

/* Applies block i to x [B,Y,X,D] along `axis`. Each row or each column of the image is one sequence. Columns are
 * first copied, because the tokens of a sequence must be contiguous. */
static attn_tensor *attend(const network *n, int i, int axis, attn_tape *tape, attn_tensor *x, attn_tensor **map)
{
    static const int swapped[] = {0, 2, 1, 3};
    if (!x)
        return NULL;
    int64_t along = n->grid[axis == ROWS ? 1 : 0], others = n->grid[axis == ROWS ? 0 : 1];
    int64_t whole[] = {attn_tensor_length(x, 0), others, along, attn_tensor_length(x, 3)};
    int64_t lines[] = {whole[0] * others, along, whole[3]};
    x = axis == COLUMNS ? attn_permute(tape, x, swapped) : x;
    x = attn_nn_vit_block_forward(&n->block[i][axis], tape, attn_reshape(tape, x, 3, lines), NULL, map);
    x = attn_reshape(tape, x, 4, whole);
    return axis == COLUMNS ? attn_permute(tape, x, swapped) : x;
}

static void forward(const void *self, const attn__call *call)
{
    static const char *const names[AXES] = {"rows", "columns"};
    const network *n = self;
    attn_tape *tape = call->tape;
    attn_named_list maps[AXES] = {{.context = attn_tape_context(tape)}, {.context = attn_tape_context(tape)}};
    attn_tensor *images = attn__call_input(call, "x"), *wanted = NULL;
    if (!attn__images_fit(tape, "axial-classifier", images, n->size[0], n->size[1], ""))
        return;
    attn_tensor *x = attn_nn_patches_forward(&n->patches, tape, images);
    if (!x)
        return;
    int64_t batch = attn_tensor_length(x, 0), hidden = attn_tensor_length(x, 2);
    x = attn_reshape(tape, x, 4, (int64_t[]){batch, n->grid[0], n->grid[1], hidden});
    x = attn_nn_axial_positions_forward(&n->positions, tape, x);
    for (int i = 0; i < n->blocks; i++) {
        for (int axis = 0; axis < AXES; axis++) {
            attn_tensor *map = NULL;
            bool keep = attn__wanted(call, names[axis], &wanted) != NULL;
            attn__block_begin(tape, keep);
            x = attn__block_end(tape, keep, attend(n, i, axis, tape, x, keep ? &map : NULL));
            attn__weights_add(&maps[axis], names[axis], i, map);
        }
    }
    x = attn_mean(tape, attn_reshape(tape, x, 3, (int64_t[]){batch, n->grid[0] * n->grid[1], hidden}), 1);
    attn__call_output(call, "logits",
                      attn_nn_linear_forward(&n->head, tape, attn_nn_layer_norm_forward(&n->norm, tape, x)));
    for (int axis = 0; x && axis < AXES; axis++)
        if (attn__wanted(call, names[axis], &wanted))
            attn__call_output(call, names[axis], attn__stack(tape, &maps[axis], names[axis]));
    attn_named_clear(&maps[ROWS]);
    attn_named_clear(&maps[COLUMNS]);
}

const attn__kind attn__kind_axial_classifier = {
    .about = {.name = "axial-classifier",
              .summary = "attention along rows and columns of patches: classifies images",
              .source = "Ho et al. 2019, arXiv:1912.12180, with the blocks of Dosovitskiy et al. 2021",
              ATTN__PORTS(keys, inputs, outputs)},
    .size = sizeof(network),
    .build = build,
    .forward = forward,
};
