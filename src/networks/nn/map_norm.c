/* SPDX-License-Identifier: MIT
 *
 * Implements convolutions followed by a norm. If the norm is a fixed affine function, it is merged into the
 * convolution.
 */
#include "nn/spatial.h"

#include "base/context.h"
#include "tensor/number.h"
#include "tensor/parts.h"
#include "tensor/tape.h"

#include <math.h>

static void frozen_init(attn_nn_batch_norm *layer, attn_nn_builder *builder, int64_t channels)
{
    const attn_nn_initializer zeros = {.start = ATTN_INIT_ZEROS}, ones = {.start = ATTN_INIT_ONES};
    *layer = (attn_nn_batch_norm){.eps = 1e-5};
    layer->weight = attn_nn_buffer(builder, "weight", 1, &channels, ones);
    layer->bias = attn_nn_buffer(builder, "bias", 1, &channels, zeros);
    layer->running_mean = attn_nn_buffer(builder, "running_mean", 1, &channels, zeros);
    layer->running_var = attn_nn_buffer(builder, "running_var", 1, &channels, ones);
}

static void group_init(attn_nn_map_norm *layer, attn_nn_builder *builder, int64_t channels)
{
    if (layer->groups < 1 || channels % layer->groups != 0) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT, "%sgroup norm: %lld groups do not divide %lld channels",
                   builder->prefix, (long long)layer->groups, (long long)channels);
        return;
    }
    layer->batch = (attn_nn_batch_norm){.eps = 1e-5};
    layer->batch.weight =
        attn_nn_parameter(builder, "weight", 1, &channels, (attn_nn_initializer){.start = ATTN_INIT_ONES});
    layer->batch.bias =
        attn_nn_parameter(builder, "bias", 1, &channels, (attn_nn_initializer){.start = ATTN_INIT_ZEROS});
}

void attn_nn_map_norm_init(attn_nn_map_norm *layer, attn_nn_builder *builder, attn_nn_map_norm_kind kind,
                           int64_t channels, int64_t groups)
{
    *layer = (attn_nn_map_norm){.kind = kind, .groups = groups};
    switch (kind) {
    case ATTN_NN_NORM_FROZEN:
        frozen_init(&layer->batch, builder, channels);
        break;
    case ATTN_NN_NORM_BATCH:
        attn_nn_batch_norm_init(&layer->batch, builder, channels, false);
        break;
    case ATTN_NN_NORM_GROUP:
        group_init(layer, builder, channels);
        break;
    }
}

/* Applies the convolution with the norm merged into it: output channel c is multiplied by weight/sqrt(var + eps) of
 * the norm, and shifted by a bias. */
static attn_tensor *folded(const attn_nn_conv *conv, const attn_nn_batch_norm *norm, attn_tape *tape, attn_tensor *x,
                           attn_tensor *addend, attn_activation activation)
{
    if (!conv->weight || !norm->weight || !norm->bias || !norm->running_mean || !norm->running_var)
        return NULL;
    int64_t channels = attn_tensor_length(conv->weight, 0);
    attn_dtype dtype = attn_tensor_dtype(conv->weight);
    attn_conv geometry = conv->geometry;
    attn_tensor *scale = attn_tape_tensor(tape, dtype, 1, &channels, NULL);
    attn_tensor *shift = attn_tape_tensor(tape, dtype, 1, &channels, NULL);
    for (int64_t c = 0; scale && shift && c < channels; c++) {
        double factor = attn__number(norm->weight, c) / sqrt(attn__number(norm->running_var, c) + norm->eps);
        attn__set_number(scale, c, factor);
        attn__set_number(shift, c, attn__number(norm->bias, c) - factor * attn__number(norm->running_mean, c));
    }
    geometry.activation = activation;
    return attn_convolve_scaled(tape, x, conv->weight, scale, shift, addend, &geometry);
}

static attn_tensor *filled(attn_tape *tape, attn_dtype dtype, int64_t n, double value)
{
    attn_tensor *x = attn_tape_tensor(tape, dtype, 1, &n, NULL);
    for (int64_t i = 0; x && value != 0 && i < n; i++)
        attn__set_number(x, i, value);
    return x;
}

/* Computes a group norm as a layer norm, in which each group of channels of an image is one row. */
static attn_tensor *group_norm(const attn_nn_map_norm *layer, attn_tape *tape, attn_tensor *x)
{
    if (!x || !layer->batch.weight || !layer->batch.bias)
        return NULL;
    int64_t shape[4] = {attn_tensor_length(x, 0), attn_tensor_length(x, 1), attn_tensor_length(x, 2),
                        attn_tensor_length(x, 3)};
    int64_t numbers = shape[1] / layer->groups * shape[2] * shape[3], affine[3] = {shape[1], 1, 1};
    attn_dtype dtype = attn_tensor_dtype(x);
    attn_tensor *rows = attn_reshape(tape, x, 2, (int64_t[]){shape[0] * layer->groups, numbers});
    rows =
        attn_layer_norm(tape, rows, filled(tape, dtype, numbers, 1), filled(tape, dtype, numbers, 0), layer->batch.eps);
    attn_tensor *y =
        attn_mul(tape, attn_reshape(tape, rows, 4, shape), attn_reshape(tape, layer->batch.weight, 3, affine));
    return attn_add(tape, y, attn_reshape(tape, layer->batch.bias, 3, affine));
}

attn_tensor *attn_nn_conv_normed(const attn_nn_conv *conv, const attn_nn_map_norm *norm, attn_tape *tape,
                                 attn_tensor *x, attn_tensor *addend, attn_activation activation)
{
    bool fixed = norm->kind == ATTN_NN_NORM_FROZEN ||
                 (norm->kind == ATTN_NN_NORM_BATCH && !tape->options.record && !tape->options.train);
    if (fixed)
        return folded(conv, &norm->batch, tape, x, addend, activation);
    attn_tensor *y = attn_nn_conv_forward(conv, tape, x);
    y = norm->kind == ATTN_NN_NORM_GROUP ? group_norm(norm, tape, y)
                                         : attn_nn_batch_norm_forward(&norm->batch, tape, y);
    y = addend ? attn_add(tape, y, addend) : y;
    return activation == ATTN_ACTIVATION_IDENTITY ? y : attn_activate(tape, y, activation);
}
