/* SPDX-License-Identifier: MIT
 *
 * Defines the axial transformer (Ho et al. 2019, arXiv:1912.12180), which is a distribution over images. Each slice (a
 * channel of a frame) depends on earlier slices, each row on the rows above, and each pixel on the pixels to the left.
 *
 * Three stacks of blocks attend to three kinds of context. The exterior encoder attends to earlier slices, without a
 * mask. The outer decoder attends to the rows above: its row attention has no mask, and its column attention has a
 * causal mask. The inner decoder attends to the pixels to the left. Masked column attention of the outer decoder also
 * attends to the query's own row. In that row, row attention has already mixed the pixels to the left and to the right.
 * The outer decoder's result is therefore shifted down by one row before the inner decoder reads it. Without this
 * shift, the model would read the pixels that it predicts. */
#include "models/axial_transformer.h"

#include "base/context.h"
#include "nn/named.h"
#include "tensor/number.h"
#include "tensor/tape_state.h"
#include "tensor/tensor.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Axes of [N,Y,X,D] along which blocks attend: along ROWS (axis 1), a pixel attends to its column; along COLUMNS
 * (axis 2), to its row. */
enum { ROWS = 1, COLUMNS = 2 };

/* ------------------------------------------------------------------------------------------------ build */

static void build_positions(attn__grid_positions *p, attn_nn_builder *builder, const attn__axial_transformer *m)
{
    const attn_nn_initializer fill = {.start = ATTN_INIT_NORMAL, .scale = 0.02};
    p->rows = attn_nn_parameter(builder, "rows", 3, (int64_t[]){m->height, 1, m->dim}, fill);
    p->columns = attn_nn_parameter(builder, "columns", 2, (int64_t[]){m->width, m->dim}, fill);
}

static void build_blocks(attn_nn_axial_block *blocks, int n, attn_nn_builder *builder, const char *name,
                         const attn_nn_axial_block_options *options)
{
    for (int i = 0; i < n; i++) {
        attn_nn_pushf(builder, "%s.%d", name, i);
        attn_nn_axial_block_init(&blocks[i], builder, options);
        attn_nn_pop(builder);
    }
}

static void build_exterior(attn__axial_transformer *m, attn_nn_builder *builder,
                           const attn_nn_axial_block_options *options)
{
    attn_nn_push(builder, "exterior");
    attn__nn_conv_named(&m->conv, builder, "conv",
                        &(attn_nn_conv_options){.spatial = 2,
                                                .in_channels = 2 * m->slices,
                                                .out_channels = m->dim,
                                                .kernel = {3, 3},
                                                .padding = {1, 1},
                                                .bias = true});
    build_positions(&m->exterior_positions, builder, m);
    build_blocks(m->exterior, m->nexterior, builder, "blocks", options);
    attn_nn_pop(builder);
}

/* Initializes the head so that the logits start near 0, with a spread of about `scale`. Before training, all K
 * levels are then about equally likely, and the loss is about log2 K bits per value. */
static void build_head(attn__axial_transformer *m, attn_nn_builder *builder, double scale)
{
    attn__nn_layer_norm_named(&m->norm, builder, "norm", m->dim, 0);
    attn_nn_push(builder, "head");
    m->head.weight =
        attn_nn_parameter(builder, "weight", 2, (int64_t[]){m->levels, m->dim},
                          (attn_nn_initializer){.start = ATTN_INIT_NORMAL, .scale = scale / sqrt((double)m->dim)});
    m->head.bias = attn_nn_parameter(builder, "bias", 1, &m->levels, (attn_nn_initializer){.start = ATTN_INIT_ZEROS});
    attn_nn_pop(builder);
}

static void build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    attn__axial_transformer *m = self;
    const attn_nn_axial_block_options options = {.dim = attn_config_int(config, "dim", 0),
                                                 .heads = attn_config_int(config, "heads", 0),
                                                 .dropout = attn_config_real(config, "dropout", 0),
                                                 .residual_scale = attn_config_real(config, "residual_init", 0)};
    m->height = attn_config_int(config, "height", 0);
    m->width = attn_config_int(config, "width", 0);
    m->channels = attn_config_int(config, "channels", 0);
    m->frames = attn_config_int(config, "frames", 1);
    m->slices = m->frames * m->channels;
    m->levels = attn_config_int(config, "levels", 256);
    m->dim = options.dim;
    m->nexterior = (int)attn_config_int(config, "exterior_blocks", 0);
    m->nouter = (int)attn_config_int(config, "outer_blocks", 0);
    m->ninner = (int)attn_config_int(config, "inner_blocks", 0);
    build_exterior(m, builder, &options);
    attn__nn_embedding_named(&m->embedding, builder, "embedding", m->levels, m->dim, 1);
    attn_nn_push(builder, "positions");
    build_positions(&m->positions, builder, m);
    attn_nn_pop(builder);
    build_blocks(m->outer, m->nouter, builder, "outer", &options);
    build_blocks(m->inner, m->ninner, builder, "inner", &options);
    build_head(m, builder, options.residual_scale);
}

/* ----------------------------------------------------------------------------------------------- checks */

bool attn__axial_transformer_takes(const attn__axial_transformer *m, attn_context *context, const attn_tensor *x,
                                   bool values)
{
    int rank = x ? attn_tensor_rank(x) : 0;
    bool fits = rank == 4 || rank == 5;
    if (fits) {
        int64_t slices = rank == 4 ? attn_tensor_length(x, 1) : attn_tensor_length(x, 1) * attn_tensor_length(x, 2);
        fits = slices == m->slices && attn_tensor_length(x, -2) == m->height && attn_tensor_length(x, -1) == m->width &&
               (rank == 4 || attn_tensor_length(x, 1) == m->frames);
    }
    if (x && attn_tensor_dtype(x) != ATTN_I32) {
        attn__fail(context, ATTN_ERROR_SHAPE, "axial-transformer: the images are of type %s; expected i32",
                   attn_dtype_name(attn_tensor_dtype(x)));
        return false;
    }
    if (!fits) {
        char found[ATTN__SHAPE_TEXT];
        attn__fail(context, ATTN_ERROR_SHAPE,
                   "axial-transformer: the images have the shape %s; expected [b,%" PRId64 ",%" PRId64 ",%" PRId64
                   "] or, with %" PRId64 " frames and %" PRId64 " channels on two axes, [b,%" PRId64 ",%" PRId64
                   ",%" PRId64 ",%" PRId64 "]",
                   x ? attn__shape_text(x, found) : "NULL", m->slices, m->height, m->width, m->frames, m->channels,
                   m->frames, m->channels, m->height, m->width);
        return false;
    }
    const int32_t *data = attn_tensor_data(x);
    for (int64_t i = 0; values && i < attn_tensor_size(x); i++) {
        if (data[i] < 0 || data[i] >= m->levels) {
            attn__fail(context, ATTN_ERROR_ARGUMENT,
                       "axial-transformer: element %" PRId64 " of the images is %d; it must be 0 to %" PRId64, i,
                       (int)data[i], m->levels - 1);
            return false;
        }
    }
    return true;
}

static bool slices_fit(const attn__axial_transformer *m, attn_context *context, const attn_tensor *x,
                       const attn_tensor *slices)
{
    int64_t batch = attn_tensor_length(x, 0);
    if (!slices)
        return true;
    bool fits = attn_tensor_dtype(slices) == ATTN_I32 && attn_tensor_rank(slices) == 1 &&
                attn_tensor_length(slices, 0) == batch;
    for (int64_t i = 0; fits && i < batch; i++) {
        int32_t slice = ((const int32_t *)attn_tensor_data(slices))[i];
        if (slice < 0 || slice >= m->slices) {
            attn__fail(context, ATTN_ERROR_ARGUMENT,
                       "axial-transformer: slices[%" PRId64 "] is %d; allowed: 0 to %" PRId64, i, (int)slice,
                       m->slices - 1);
            return false;
        }
    }
    if (!fits) {
        char found[ATTN__SHAPE_TEXT];
        attn__fail(context, ATTN_ERROR_ARGUMENT,
                   "axial-transformer: slices must be i32 [%" PRId64 "], one for each image; found %s %s", batch,
                   attn_dtype_name(attn_tensor_dtype(slices)), attn__shape_text(slices, found));
    }
    return fits;
}

/* ---------------------------------------------------------------------------------------------- forward */

static int64_t active_count(const attn__axial_transformer *m, const attn_tensor *x, const attn_tensor *slices)
{
    return attn_tensor_length(x, 0) * (slices ? 1 : m->slices);
}

/* Returns the index of the n-th active slice, counted over the slices of all images. Active slices are those whose
 * logits are computed. */
static int64_t active_slice(const attn__axial_transformer *m, const attn_tensor *slices, int64_t n)
{
    return slices ? n * m->slices + ((const int32_t *)attn_tensor_data(slices))[n] : n;
}

/* Returns the encoder's input for each active slice, [N,2S,Y,X]. The first S planes hold the earlier slices, scaled to
 * [0, 1], and zeros for the active slice and later slices. The other S planes are zero, with one exception: the plane
 * of the active slice holds ones. */
static attn_tensor *encoder_input(const attn__axial_transformer *m, attn_tape *tape, const attn_tensor *x,
                                  const attn_tensor *slices)
{
    int64_t n = active_count(m, x, slices), plane = m->height * m->width;
    attn_tensor *input = attn_tape_tensor(tape, attn_tensor_dtype(m->head.weight), 4,
                                          (int64_t[]){n, 2 * m->slices, m->height, m->width}, NULL);
    const int32_t *data = attn_tensor_data(x);
    double scale = m->levels > 1 ? 1 / (double)(m->levels - 1) : 0;
    for (int64_t i = 0; input && i < n; i++) {
        int64_t active = active_slice(m, slices, i) % m->slices, first = active_slice(m, slices, i) - active;
        int64_t to = i * 2 * m->slices * plane;
        for (int64_t j = 0; j < active * plane; j++)
            attn__set_number(input, to + j, scale * data[first * plane + j]);
        for (int64_t j = 0; j < plane; j++)
            attn__set_number(input, to + (m->slices + active) * plane + j, 1);
    }
    return input;
}

static attn_tensor *add_positions(const attn__grid_positions *p, attn_tape *tape, attn_tensor *x)
{
    return attn_add(tape, attn_add(tape, x, p->rows), p->columns);
}

/* If `maps` is not NULL, adds the block's attention weights to `maps` in the shape [N,H,Y,X,Y+X]: first the Y weights
 * over the pixel's column, then the X weights over its row. The weights of the axis along which the block does not
 * attend are zero. */
static attn_tensor *run_block(const attn_nn_axial_block *block, attn_tape *tape, attn_tensor *x, int axis,
                              attn_causal causal, attn_named_list *maps)
{
    attn_tensor *both[2] = {NULL}, **own = &both[axis == ROWS ? 0 : 1], **other = &both[axis == ROWS ? 1 : 0];
    x = attn_nn_axial_block_forward(block, tape, x, axis, causal, maps ? own : NULL);
    if (*own) {
        int64_t shape[5];
        memcpy(shape, attn_tensor_shape(*own), sizeof shape);
        shape[4] = shape[axis == ROWS ? 3 : 2];
        *other = attn_tape_tensor(tape, attn_tensor_dtype(*own), 5, shape, NULL);
        attn__weights_add(maps, "weights", (int)maps->n, attn_concat(tape, both, 2, -1));
    }
    return x;
}

attn_tensor *attn__axial_transformer_base(const attn__axial_transformer *m, attn_tape *tape, const attn_tensor *x,
                                          const attn_tensor *slices, attn_named_list *maps)
{
    attn_tensor *h = attn_nn_conv_forward(&m->conv, tape, encoder_input(m, tape, x, slices));
    /* channels become the last axis, because the blocks are then faster */
    h = h ? attn_permute(tape, h, (int[]){0, 2, 3, 1}) : NULL;
    h = add_positions(&m->exterior_positions, tape, h);
    for (int i = 0; i < m->nexterior; i++)
        h = run_block(&m->exterior[i], tape, h, i % 2 ? ROWS : COLUMNS, ATTN_CAUSAL_NONE, maps);
    return add_positions(&m->positions, tape, h);
}

/* Returns the pixel values of the active slices, I32 [N,Y,X]. */
static attn_tensor *active_numbers(const attn__axial_transformer *m, attn_tape *tape, const attn_tensor *x,
                                   const attn_tensor *slices)
{
    int64_t n = active_count(m, x, slices), plane = m->height * m->width;
    attn_tensor *ids = attn_tape_tensor(tape, ATTN_I32, 3, (int64_t[]){n, m->height, m->width}, NULL);
    for (int64_t i = 0; ids && i < n; i++) {
        memcpy((int32_t *)attn_tensor_data(ids) + i * plane,
               (const int32_t *)attn_tensor_data(x) + active_slice(m, slices, i) * plane,
               (size_t)plane * sizeof(int32_t));
    }
    return ids;
}

/* Shifts x [N,Y,X,D] by one position along `axis` and fills the first position with zeros. */
static attn_tensor *shift(attn_tape *tape, attn_tensor *x, int axis)
{
    if (!x)
        return NULL;
    int64_t shape[4], n = attn_tensor_length(x, axis);
    memcpy(shape, attn_tensor_shape(x), sizeof shape);
    shape[axis] = 1;
    attn_tensor *parts[2] = {attn_tape_tensor(tape, attn_tensor_dtype(x), 4, shape, NULL),
                             n > 1 ? attn_slice(tape, x, axis, 0, n - 1) : NULL};
    return attn_concat(tape, parts, n > 1 ? 2 : 1, axis);
}

attn_tensor *attn__axial_transformer_head(const attn__axial_transformer *m, attn_tape *tape, attn_tensor *h)
{
    return attn_nn_linear_forward(&m->head, tape, attn_nn_layer_norm_forward(&m->norm, tape, h));
}

static attn_tensor *logits_of(const attn__axial_transformer *m, attn_tape *tape, const attn_tensor *x,
                              const attn_tensor *slices, attn_tensor **ids, attn_named_list *maps)
{
    attn_tensor *base = attn__axial_transformer_base(m, tape, x, slices, maps);
    *ids = active_numbers(m, tape, x, slices);
    attn_tensor *h = attn_nn_embedding_forward(&m->embedding, tape, *ids), *outer = attn_add(tape, h, base);
    for (int i = 0; i < m->nouter; i++) {
        outer = run_block(&m->outer[i], tape, outer, i % 2 ? ROWS : COLUMNS,
                          i % 2 ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_NONE, maps);
    }
    attn_tensor *inner = attn_add(tape, attn_add(tape, shift(tape, h, COLUMNS), shift(tape, outer, ROWS)), base);
    for (int i = 0; i < m->ninner; i++)
        inner = run_block(&m->inner[i], tape, inner, COLUMNS, ATTN_CAUSAL_TOP_LEFT, maps);
    return attn__axial_transformer_head(m, tape, inner);
}

const attn__axial_transformer *attn__axial_transformer_of(const attn_model *model, attn_context *context)
{
    extern const attn__kind attn__kind_axial_transformer;
    if (model->kind == &attn__kind_axial_transformer)
        return model->self;
    attn__fail(context, ATTN_ERROR_UNSUPPORTED,
               "the architecture %s gives no distribution of images; expected axial-transformer",
               model->kind->about.name);
    return NULL;
}

/* Returns NULL and sets an error if the model or its inputs do not fit. */
static attn_tensor *checked_logits(attn_model *model, attn_tape *tape, const attn_tensor *x, const attn_tensor *slices,
                                   attn_tensor **ids, attn_named_list *maps)
{
    attn_context *context = attn_tape_context(tape);
    const attn__axial_transformer *m = attn__axial_transformer_of(model, context);
    if (!m || !attn__axial_transformer_takes(m, context, x, true) || !slices_fit(m, context, x, slices) ||
        !attn__model_begin(model, tape))
        return NULL;
    attn_tensor *logits = logits_of(m, tape, x, slices, ids, maps);
    attn__model_end(tape);
    return logits;
}

static attn_tensor *shaped_logits(attn_model *model, attn_tape *tape, const attn_tensor *x, const attn_tensor *slices,
                                  attn_named_list *maps)
{
    attn_tensor *ids, *logits = checked_logits(model, tape, x, slices, &ids, maps);
    if (!logits || slices)
        return logits;
    int rank = attn_tensor_rank(x);
    int64_t shape[ATTN_MAX_RANK];
    memcpy(shape, attn_tensor_shape(x), (size_t)rank * sizeof *shape);
    shape[rank] = attn_tensor_length(logits, -1);
    return attn_reshape(tape, logits, rank + 1, shape);
}

attn_tensor *attn_axial_transformer_logits(attn_model *model, attn_tape *tape, const attn_tensor *x,
                                           const attn_tensor *slices)
{
    ATTN__TAPE_CALL(attn_tape_context(tape));
    return shaped_logits(model, tape, x, slices, NULL);
}

attn_tensor *attn_axial_transformer_bits(attn_model *model, attn_tape *tape, const attn_tensor *x,
                                         const attn_tensor *slices)
{
    ATTN__TAPE_CALL(attn_tape_context(tape));
    attn_tensor *ids, *logits = checked_logits(model, tape, x, slices, &ids, NULL);
    attn_tensor *nats = logits ? attn_cross_entropy(tape, logits, ids, &(attn_cross_entropy_options){0}) : NULL;
    return attn_affine(tape, nats, 1 / log(2), 0);
}

static void forward(const void *self, const attn__call *call)
{
    (void)self;
    attn_tensor *x = attn__call_input(call, "image"), *slices = attn__call_input(call, "slices");
    attn_tensor *unused = NULL;
    bool keep = attn__wanted(call, "weights", &unused) != NULL;
    attn_named_list maps = {.context = attn_tape_context(call->tape)};
    if (x) {
        attn_model *model = (attn_model *)(uintptr_t)call->model;
        attn_tensor *logits = shaped_logits(model, call->tape, x, slices, keep ? &maps : NULL);
        attn__call_output(call, "logits", logits);
        attn__call_output(call, "weights", keep && logits ? attn__stack(call->tape, &maps, "weights") : NULL);
    }
    attn_named_clear(&maps);
}

static const attn_setting keys[] = {
    ATTN__KEY_COUNT("height", NULL, "rows of an image"),
    ATTN__KEY_COUNT("width", NULL, "columns of an image"),
    ATTN__KEY_COUNT("channels", NULL, "numbers a pixel: 3 for colours"),
    {"frames", ATTN_CONFIG_TYPE_INT, "1", 1, 4096, NULL, "frames of a video"},
    {"levels", ATTN_CONFIG_TYPE_INT, "256", 1, 65536, NULL, "values that a number can have"},
    ATTN__KEY_COUNT("dim", NULL, "channels of the model"),
    ATTN__KEY_COUNT("heads", NULL, "heads; divides dim"),
    {"exterior_blocks", ATTN_CONFIG_TYPE_INT, "8", 0, ATTN__MAX_BLOCKS, NULL,
     "blocks that attend to earlier channels and frames, along rows and columns in turn"},
    {"outer_blocks", ATTN_CONFIG_TYPE_INT, "8", 0, ATTN__MAX_BLOCKS, NULL,
     "blocks that attend to the rows above, along rows and columns in turn"},
    {"inner_blocks", ATTN_CONFIG_TYPE_INT, "8", 0, ATTN__MAX_BLOCKS, NULL,
     "blocks that attend to the pixels to the left"},
    {"residual_init", ATTN_CONFIG_TYPE_REAL, "1e-10", 1e-30, 1, NULL,
     "factor of the initial logits and of the initial outputs of blocks"},
    ATTN__KEY_DROPOUT,
    ATTN__KEY_INIT,
};
static const attn_port inputs[] = {
    ATTN__PORT_IDS("image", "(b,c,h,w) or (b,f,c,h,w)", "integers in [0, levels)"),
    {"slices", "(b)", true, true, "frame * channels + channel to predict of each image; left out: all"},
};
static const attn_port outputs[] = {
    ATTN__PORT("logits", "(b,c,h,w,levels), (b,f,c,h,w,levels); with slices (b,h,w,levels)", ""),
    ATTN__PORT_OPTIONAL("weights", "(blocks,n,heads,h,w,h+w)",
                        "exterior, outer and inner blocks; n slices; of each pixel over its column, then its row"),
};

const attn__kind attn__kind_axial_transformer = {
    .about = {.name = "axial-transformer",
              .summary = "a distribution over images and videos, drawn one number at a time",
              .source = "Ho et al. 2019, arXiv:1912.12180",
              ATTN__PORTS(keys, inputs, outputs)},
    .size = sizeof(attn__axial_transformer),
    .build = build,
    .forward = forward,
};
