/* SPDX-License-Identifier: MIT
 *
 * Implements DETR's two kinds of positions of an image: sines, and learned vectors of rows and columns. Channels are
 * the last axis, because positions are added to queries and keys, whose channels are last. As in DETR, sine positions
 * have the row's channels first, and learned positions have the column's channels first. */
#include "nn/check.h"

#include "nn/spatial.h"
#include "base/context.h"
#include "tensor/number.h"
#include "tensor/tape_state.h"
#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

/* The positions of the pixels of a batch of images, along one of the two axes. */
typedef struct axis {
    const attn_nn_sine_positions *layer;
    attn_tensor *out;
    int64_t channel;     /* the axis's first channel in `out` */
    const double *waves; /* [feats] */
    double *positions;   /* [images * rows * cols] */
    int64_t same;        /* distance to the earlier pixel that has this position if neither line is padded otherwise */
} axis;

/* Writes the position of each of the n pixels of a line, `step` apart: the number of unpadded pixels up to it. */
static void count_line(const axis *a, const uint8_t *padding, int64_t first, int64_t n, int64_t step)
{
    int64_t count = 0;
    for (int64_t i = first; i < first + n * step; i += step)
        a->positions[i] = (double)(count += !padding || !padding[i]);
    for (int64_t i = first; a->layer->scale > 0 && i < first + n * step; i += step)
        a->positions[i] = a->positions[i] / ((double)count + 1e-6) * a->layer->scale;
}

/* Writes the sines and cosines of a pixel's position. They alternate: each pair of channels is the sine and the cosine
 * of one wavelength. Most pixels have the position of an earlier pixel, whose numbers are copied. */
static void put_axis(const axis *a, int64_t pixel, bool has_earlier)
{
    int64_t feats = a->layer->feats, wide = 2 * feats, at = pixel * wide + a->channel;
    double position = a->positions[pixel];
    if (has_earlier && a->positions[pixel - a->same] == position) {
        size_t size = attn_dtype_size(attn_tensor_dtype(a->out));
        char *data = attn_tensor_data(a->out);
        memcpy(data + (size_t)at * size, data + (size_t)(at - a->same * wide) * size, (size_t)feats * size);
        return;
    }
    for (int64_t j = 0; j < feats; j++) {
        double angle = position / a->waves[j];
        attn__set_number(a->out, at + j, j % 2 ? cos(angle) : sin(angle));
    }
}

static bool accepts(const attn_nn_sine_positions *layer, attn_tape *tape, const int64_t shape[3],
                    const attn_tensor *padding)
{
    if (layer->feats < 2 || layer->feats % 2 != 0) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_ARGUMENT,
                   "sines of positions: found %lld channels for each axis; expected an even number, at least 2",
                   (long long)layer->feats);
        return false;
    }
    if (!(layer->temperature > 0)) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_ARGUMENT,
                   "sines of positions: the temperature is %g; it must be above 0", layer->temperature);
        return false;
    }
    bool fits = !padding || (attn_tensor_rank(padding) == 3 && attn_tensor_dtype(padding) == ATTN_U8);
    for (int i = 0; fits && padding && i < 3; i++)
        fits = attn_tensor_length(padding, i) == shape[i];
    if (!fits) {
        char found[ATTN__SHAPE_TEXT];
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE,
                   "sines of positions: expected padding u8 [%lld,%lld,%lld], found %s %s", (long long)shape[0],
                   (long long)shape[1], (long long)shape[2], attn_dtype_name(attn_tensor_dtype(padding)),
                   attn__shape_text(padding, found));
    }
    return fits;
}

attn_tensor *attn_nn_sine_positions_forward(const attn_nn_sine_positions *layer, attn_tape *tape, attn_dtype dtype,
                                            const int64_t shape[3], const attn_tensor *padding)
{
    if (!accepts(layer, tape, shape, padding))
        return NULL;
    int64_t rows = shape[1], cols = shape[2], wide = 2 * layer->feats;
    int64_t pixels = shape[0] * rows * cols;
    attn_context *context = attn_tape_context(tape);
    attn_tensor *out = attn_tape_tensor(tape, dtype, 4, (int64_t[]){shape[0], rows, cols, wide}, NULL);
    double *memory =
        !out ? NULL : attn__alloc(context, attn__size_mul((size_t)(2 * pixels + layer->feats), sizeof *memory));
    const uint8_t *pads = padding ? attn_tensor_data(padding) : NULL;
    axis down = {layer, out, 0, memory, memory ? memory + layer->feats : NULL, 1};
    axis across = {layer, out, layer->feats, memory, memory ? down.positions + pixels : NULL, cols};
    for (int64_t j = 0; memory && j < layer->feats; j++)
        memory[j] = pow(layer->temperature, (double)(j - j % 2) / (double)layer->feats);
    for (int64_t image = 0; memory && image < shape[0]; image++) {
        for (int64_t x = 0; x < cols; x++)
            count_line(&down, pads, image * rows * cols + x, rows, cols);
        for (int64_t y = 0; y < rows; y++)
            count_line(&across, pads, (image * rows + y) * cols, cols, 1);
    }
    for (int64_t i = 0; memory && i < pixels; i++) {
        put_axis(&down, i, i % cols > 0);
        put_axis(&across, i, i / cols % rows > 0);
    }
    attn__free(context, memory);
    return memory ? out : NULL;
}

/* ---------------------------------------------------------------------------------------------- learned */

static attn_tensor *table_init(attn_nn_builder *builder, const char *name, int64_t most, int64_t feats)
{
    attn_nn_initializer fill = {.start = ATTN_INIT_POSITIVE, .scale = 1}; /* the range is [0, 1), as in DETR */
    attn_nn_push(builder, name);
    attn_tensor *table = attn_nn_parameter(builder, "weight", 2, (int64_t[]){most, feats}, fill);
    attn_nn_pop(builder);
    return table;
}

void attn_nn_learned_positions_init(attn_nn_learned_positions *layer, attn_nn_builder *builder, int64_t feats,
                                    int64_t most)
{
    layer->row = table_init(builder, "row_embed", most, feats);
    layer->col = table_init(builder, "col_embed", most, feats);
}

/* Returns the first rows of a table, repeated to the shape [rows,cols,feats]. If `along_rows` is true, each table
 * row belongs to a row of the image, otherwise to a column. */
static attn_tensor *spread(attn_tape *tape, attn_tensor *table, int64_t rows, int64_t cols, bool along_rows)
{
    int64_t n = along_rows ? rows : cols, feats = attn_tensor_length(table, 1);
    attn_tensor *part = attn_slice(tape, table, 0, 0, n);
    attn_tensor *zeros = attn_tape_tensor(tape, attn_tensor_dtype(table), 3, (int64_t[]){rows, cols, feats}, NULL);
    int64_t shape[3] = {along_rows ? n : 1, along_rows ? 1 : n, feats};
    return part && zeros ? attn_add(tape, zeros, attn_reshape(tape, part, 3, shape)) : NULL;
}

attn_tensor *attn_nn_learned_positions_forward(const attn_nn_learned_positions *layer, attn_tape *tape, int64_t rows,
                                               int64_t cols)
{
    if (!layer->row || !layer->col)
        return NULL;
    int64_t most = attn_tensor_length(layer->row, 0);
    if (rows < 1 || cols < 1 || rows > most || cols > most) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE,
                   "learned positions: the image is %lld x %lld, but there are positions for sides of 1 to %lld",
                   (long long)rows, (long long)cols, (long long)most);
        return NULL;
    }
    attn_tensor *col = spread(tape, layer->col, rows, cols, false), *row = spread(tape, layer->row, rows, cols, true);
    return attn_concat(tape, (attn_tensor *[]){col, row}, 2, 2);
}
