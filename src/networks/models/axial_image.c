/* SPDX-License-Identifier: MIT
 *
 * Defines the axial image transformer. It alternates between attention along columns and rows, and convolutions. Its
 * blocks can be reversible. As in the original, the reversible network and the plain network are different functions
 * with different parameter names: the reversible network works on two copies of its input and averages them. Both exist
 * here, so that the weights of both can be used. */
#include "models/axial_image.h"

#include "base/context.h"
#include "models/axial_parts.h"
#include "nn/check.h"
#include "nn/named.h"
#include "tensor/parts.h"
#include "tensor/tape_state.h"

enum { MOST_BLOCKS = 2 * ATTN__MAX_BLOCKS };
enum { CHANNELS = 1 }; /* The channels are axis 1, where convolutions expect them. */

static attn_tensor *attend_line(const attn__axial_image_line *b, attn_tape *tape, attn_tensor *x, attn_tensor **weights)
{
    attn__block_begin(tape, weights != NULL);
    attn_tensor *y =
        attn_channel_norm(tape, x, CHANNELS, b->norm.weight, b->norm.bias, b->norm.eps, ATTN_NORM_VARIANCE);
    y = attn_nn_self_attention_axis(&b->attention, tape, y, b->axis, CHANNELS, weights);
    return attn__block_end(tape, weights != NULL, attn_dropout(tape, y, b->dropout));
}

static attn_tensor *run_line(const void *self, attn_tape *tape, attn_tensor *x)
{
    return attend_line(self, tape, x, NULL);
}

static attn_tensor *run_conv(const void *self, attn_tape *tape, attn_tensor *x)
{
    const attn__axial_image_conv *b = self;
    attn_scope_begin(tape);
    attn_tensor *y = attn_nn_conv_forward(&b->widen, tape, attn_nn_channel_norm_forward(&b->norm, tape, x));
    y = attn_nn_conv_forward(&b->narrow, tape, y);
    return attn_scope_end(tape, attn_dropout(tape, y, b->dropout));
}

/* ------------------------------------------------------------------------------------------------ build */

static void build_line(attn__axial_image_line *b, attn_nn_builder *builder, const attn_config *config, int axis)
{
    b->axis = axis;
    b->dropout = attn_config_real(config, "dropout", 0);
    attn__nn_layer_norm_named(&b->norm, builder, "fn.norm", attn_config_int(config, "dim", 0), 0);
    attn_nn_push(builder, "fn.fn");
    attn_nn_self_attention_init(&b->attention, builder, attn_config_int(config, "dim", 0),
                                attn_config_int(config, "heads", 0), attn_config_int(config, "dim_heads", 0));
    attn_nn_pop(builder);
}

static void build_conv(attn__axial_image_conv *b, attn_nn_builder *builder, const attn_config *config)
{
    int64_t dim = attn_config_int(config, "dim", 0), wide = 4 * dim;
    attn_nn_conv_options options = {.spatial = 2,
                                    .in_channels = dim,
                                    .out_channels = wide,
                                    .kernel = {3, 3},
                                    .padding = {1, 1},
                                    .bias = true,
                                    .activation = ATTN_ACTIVATION_LEAKY_RELU};
    b->dropout = attn_config_real(config, "dropout", 0);
    attn_nn_push(builder, "0");
    attn_nn_channel_norm_init(&b->norm, builder, dim, 0);
    attn_nn_pop(builder);
    attn__nn_conv_named(&b->widen, builder, "1", &options);
    options.in_channels = wide;
    options.out_channels = dim;
    options.activation = ATTN_ACTIVATION_IDENTITY;
    /* the second convolution has index 3, because index 2 is the leaky ReLU, which has no parameters */
    attn_nn_push(builder, "3");
    attn_nn_conv_init(&b->narrow, builder, &options);
    attn_nn_pop(builder);
}

static void build_blocks(attn__axial_image *m, attn_nn_builder *builder, const attn_config *config)
{
    static const char *const reversible[] = {"f.net", "g.net"}, *const plain[] = {"0", "1"};
    for (int i = 0; i < 2 * m->depth; i++) { /* even blocks are attention, odd blocks are convolutions */
        for (int half = 0; half < 2; half++) {
            attn_nn_pushf(builder, "blocks.%d.%s", i, m->reversible ? reversible[half] : plain[half]);
            if (i % 2 == 0)
                build_line(&m->line[i / 2][half], builder, config, 2 + half);
            else
                build_conv(&m->conv[i / 2][half], builder, config);
            attn_nn_pop(builder);
        }
    }
}

void attn__axial_image_build(attn__axial_image *m, attn_nn_builder *builder, const attn_config *config,
                             const int64_t *shape)
{
    m->reversible = attn_config_bool(config, "reversible", true);
    m->depth = (int)attn_config_int(config, "depth", 0);
    m->has_positions = shape != NULL;
    if (shape) {
        attn_nn_push(builder, "pos_emb");
        attn_nn_axial_positions_init(&m->positions, builder, attn_config_int(config, "dim", 0), 2, shape, CHANNELS,
                                     attn__positions_fit(config));
        attn_nn_pop(builder);
    }
    attn_nn_push(builder, "layers");
    build_blocks(m, builder, config);
    attn_nn_pop(builder);
}

static void build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    int64_t index = attn_config_int(config, "dim_index", 1);
    const attn_config_value *shape = attn_config_get(config, "axial_pos_emb_shape");
    if (index != CHANNELS && index != CHANNELS - 4) {
        attn__fail(
            builder->context, ATTN_ERROR_ARGUMENT,
            "axial-image-transformer: dim_index is %d; expected 1, since convolutions need the channels at axis 1",
            (int)index);
        return;
    }
    if (shape && shape->n != 2) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT,
                   "axial-image-transformer: axial_pos_emb_shape has %d numbers; expected 2, height and width",
                   (int)shape->n);
        return;
    }
    attn__axial_image_build(self, builder, config, shape ? shape->integers : NULL);
}

/* ---------------------------------------------------------------------------------------------- forward */

static attn_reversible_block block_at(const attn__axial_image *m, int i)
{
    const attn__axial_image_line *line = m->line[i / 2];
    const attn__axial_image_conv *conv = m->conv[i / 2];
    if (i % 2 == 0)
        return (attn_reversible_block){{run_line, &line[0]}, {run_line, &line[1]}};
    return (attn_reversible_block){{run_conv, &conv[0]}, {run_conv, &conv[1]}};
}

/* Runs the network and returns its attention weights [depth,b,heads,h,w,h+w]. If the blocks are reversible, they run
 * like plain blocks here: one after the other, and their activations are stored. */
static attn_tensor *run_with_weights(const attn__axial_image *m, attn_tape *tape, attn_tensor *x, attn_tensor **weights)
{
    attn_named_list list = {.context = attn_tape_context(tape)};
    attn_tensor *first = x, *second = x;
    for (int i = 0; second && i < 2 * m->depth; i++) {
        attn_reversible_block block = block_at(m, i);
        attn_tensor *maps[2] = {NULL}, *y;
        bool line = i % 2 == 0;
        y = line ? attend_line(block.f.self, tape, second, &maps[0]) : block.f.run(block.f.self, tape, second);
        first = attn_add(tape, first, y);
        attn_tensor *of_g = first;
        y = line ? attend_line(block.g.self, tape, of_g, &maps[1]) : block.g.run(block.g.self, tape, of_g);
        second = attn_add(tape, m->reversible ? second : first, y);
        first = m->reversible ? first : second;
        attn__weights_add(&list, "weights", i / 2, line && maps[1] ? attn_concat(tape, maps, 2, -1) : NULL);
    }
    *weights = second ? attn__stack(tape, &list, "weights") : NULL;
    attn_named_clear(&list);
    return m->reversible ? attn_affine(tape, attn_add(tape, first, second), 0.5, 0) : second;
}

attn_tensor *attn__axial_image_forward(const attn__axial_image *m, attn_tape *tape, attn_tensor *x,
                                       attn_tensor **weights)
{
    attn_reversible_block blocks[MOST_BLOCKS];
    if (m->has_positions)
        x = attn_nn_axial_positions_forward(&m->positions, tape, x);
    if (weights)
        return run_with_weights(m, tape, x, weights);
    for (int i = 0; i < 2 * m->depth; i++) {
        blocks[i] = block_at(m, i);
        if (!m->reversible) {
            attn_scope_begin(tape);
            x = x ? attn_add(tape, x, blocks[i].f.run(blocks[i].f.self, tape, x)) : NULL;
            x = x ? attn_add(tape, x, blocks[i].g.run(blocks[i].g.self, tape, x)) : NULL;
            x = attn_scope_end(tape, x);
        }
    }
    return m->reversible ? attn_reversible(tape, x, blocks, 2 * m->depth) : x;
}

static void run_stack(const void *self, const attn__call *call, const char *name)
{
    attn_tensor *weights = NULL;
    attn_tensor *x = attn__call_input(call, "x");
    if (x && attn_tensor_rank(x) != 4) {
        attn__fail(attn_tape_context(call->tape), ATTN_ERROR_SHAPE, "%s: expected x (b,dim,h,w), found %d axes", name,
                   attn_tensor_rank(x));
        return;
    }
    bool keep = attn__wanted(call, "weights", &weights) != NULL;
    attn__call_output(call, "out", attn__axial_image_forward(self, call->tape, x, keep ? &weights : NULL));
    if (keep)
        attn__call_output(call, "weights", weights);
}

static void forward(const void *self, const attn__call *call)
{
    run_stack(self, call, "axial-image-transformer");
}

/* clang-format off */
#define KEYS_HEADS                                                                                                     \
    ATTN__KEY_COUNT("heads", "8", "heads; divides dim where dim_heads is not given"),                                  \
    ATTN__KEY_COUNT("dim_heads", "", "channels of a head; default dim / heads")
#define KEY_DEPTH                                                                                                      \
    {"depth", ATTN_CONFIG_TYPE_INT, NULL, 1, ATTN__MAX_BLOCKS, NULL, "blocks of attention and convolutions"}
/* clang-format on */
static const attn_setting keys[] = {
    ATTN__KEY_COUNT("dim", NULL, "channels"),
    KEY_DEPTH,
    KEYS_HEADS,
    {"dim_index", ATTN_CONFIG_TYPE_INT, "1", -ATTN_MAX_RANK, ATTN_MAX_RANK, NULL,
     "the axis of the channels: 1, where convolutions need them"},
    ATTN__KEY_FLAG("reversible", "true", "train in memory that does not grow with depth; computes another function"),
    {"axial_pos_emb_shape", ATTN_CONFIG_TYPE_INTS, "", 0, 0, NULL,
     "height and width of learned positions; default none"},
    ATTN__KEY_RESIZE,
    ATTN__KEY_DROPOUT,
    ATTN__KEY_INIT,
};
static const attn_port inputs[] = {ATTN__PORT("x", "(b,dim,h,w)", "")};
static const attn_port outputs[] = {
    ATTN__PORT("out", "(b,dim,h,w)", ""),
    ATTN__PORT_OPTIONAL("weights", "(depth,b,heads,h,w,h+w)",
                        "of each pixel over its column, then over its row; takes the memory of all layers"),
};

const attn__kind attn__kind_axial_image_transformer = {
    .about = {.name = "axial-image-transformer",
              .summary = "attention along columns and rows of an image, and 3x3 convolutions",
              .source = "Ho et al. 2019, arXiv:1912.12180; lucidrains/axial-attention; Gomez et al. 2017, "
                        "arXiv:1707.04585",
              ATTN__PORTS(keys, inputs, outputs)},
    .size = sizeof(attn__axial_image),
    .build = build,
    .forward = forward,
};

/* ------------------------------------------------------------------------------ the blocks by themselves */

static void sequence_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    attn__axial_image *m = self;
    m->reversible = attn_config_bool(config, "reversible", true);
    m->depth = (int)attn_config_int(config, "depth", 0);
    build_blocks(m, builder, config);
}

static void sequence_forward(const void *self, const attn__call *call)
{
    run_stack(self, call, "reversible-sequence");
}

static const attn_setting sequence_keys[] = {
    ATTN__KEY_COUNT("dim", NULL, "channels"),
    KEY_DEPTH,
    KEYS_HEADS,
    ATTN__KEY_FLAG("reversible", "true", "false: the original's Sequential, which computes another function"),
    ATTN__KEY_DROPOUT,
    ATTN__KEY_INIT,
};

const attn__kind attn__kind_reversible_sequence = {
    .about = {.name = "reversible-sequence",
              .summary = "the blocks of axial-image-transformer without positions; memory does not grow with depth",
              .source = "Gomez et al. 2017, arXiv:1707.04585; lucidrains/axial-attention",
              ATTN__PORTS(sequence_keys, inputs, outputs)},
    .size = sizeof(attn__axial_image),
    .build = sequence_build,
    .forward = sequence_forward,
};

typedef struct one_block {
    attn__axial_image_line line[2];
    attn__axial_image_conv conv[2];
    bool attends;
    int64_t dim;
} one_block;

static const char *const functions[] = {"attention", "convolution", NULL};

static void block_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    static const char *const reversible[] = {"f.net", "g.net"}, *const plain[] = {"f", "g"};
    one_block *b = self;
    b->attends = attn__config_choice(config, "functions", functions) == 0;
    b->dim = attn_config_int(config, "dim", 0);
    for (int half = 0; half < 2; half++) {
        attn_nn_push(builder, (attn_config_bool(config, "reversible", true) ? reversible : plain)[half]);
        if (b->attends)
            build_line(&b->line[half], builder, config, 2 + half);
        else
            build_conv(&b->conv[half], builder, config);
        attn_nn_pop(builder);
    }
}

static void block_forward(const void *self, const attn__call *call)
{
    const one_block *b = self;
    attn_tape *tape = call->tape;
    attn_tensor *x = attn__call_input(call, "x");
    if (!attn__nn_has_channels(tape, "reversible-block", x, 4, CHANNELS, 2 * b->dim))
        return;
    attn_tensor *y[2] = {attn_slice(tape, x, CHANNELS, 0, b->dim), attn_slice(tape, x, CHANNELS, b->dim, 2 * b->dim)};
    for (int half = 0; half < 2; half++) {
        attn_tensor *from = y[1 - half];
        attn_tensor *change = !from        ? NULL
                              : b->attends ? run_line(&b->line[half], tape, from)
                                           : run_conv(&b->conv[half], tape, from);
        y[half] = attn_add(tape, y[half], change);
    }
    attn__call_output(call, "out", attn_concat(tape, y, 2, CHANNELS));
}

static const attn_setting block_keys[] = {
    ATTN__KEY_COUNT("dim", NULL, "channels of each half"),
    {"functions", ATTN_CONFIG_TYPE_TEXT, "attention", 0, 0, functions,
     "f and g: attention along columns and along rows, or twice two 3x3 convolutions"},
    KEYS_HEADS,
    ATTN__KEY_FLAG("reversible", "true", "false: the parameter names of the original's IrreversibleBlock"),
    ATTN__KEY_DROPOUT,
    ATTN__KEY_INIT,
};
static const attn_port block_inputs[] = {ATTN__PORT("x", "(b,2*dim,h,w)", "both halves")};
static const attn_port block_outputs[] = {ATTN__PORT("out", "(b,2*dim,h,w)", "both halves")};

const attn__kind attn__kind_reversible_block = {
    .about = {.name = "reversible-block",
              .summary = "adds a function of each half of the channels to the other half",
              .source = "Gomez et al. 2017, arXiv:1707.04585; lucidrains/axial-attention",
              ATTN__PORTS(block_keys, block_inputs, block_outputs)},
    .size = sizeof(one_block),
    .build = block_build,
    .forward = block_forward,
};
