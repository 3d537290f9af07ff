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

#include <math.h>

/* Writes the sines and cosines of one position. They alternate: each pair of channels is the sine and the cosine of
 * one wavelength. */
static void put_axis(const attn_nn_sine_positions *layer, attn_tensor *out, int64_t at, double position)
{
    for (int64_t j = 0; j < layer->feats; j++) {
        int64_t even = j - j % 2;
        double angle = position / pow(layer->temperature, (double)even / (double)layer->feats);
        attn__set_number(out, at + j, j % 2 ? cos(angle) : sin(angle));
    }
}

/* One row or column of the image, along which unpadded pixels are counted. */
typedef struct line {
    const uint8_t *padding; /* padding byte of the line's first pixel, or NULL */
    int64_t n, step;
} line;

static double count_to(const line *l, int64_t last)
{
    int64_t n = 0;
    for (int64_t i = 0; i <= last; i++)
        n += !l->padding || !l->padding[i * l->step];
    return (double)n;
}

static double position_on(const attn_nn_sine_positions *layer, const line *l, int64_t i)
{
    double count = count_to(l, i);
    return layer->scale > 0 ? count / (count_to(l, l->n - 1) + 1e-6) * layer->scale : count;
}

static bool accepts(const attn_nn_sine_positions *layer, attn_tape *tape, const int64_t shape[3],
                    const attn_tensor *padding)
{
    if (layer->feats < 2 || layer->feats % 2 != 0 || !(layer->temperature > 0)) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_ARGUMENT,
                   "sines of positions: %lld channels an axis (an even number "
                   "wanted), temperature %g",
                   (long long)layer->feats, layer->temperature);
        return false;
    }
    bool fits = !padding || (attn_tensor_rank(padding) == 3 && attn_tensor_dtype(padding) == ATTN_U8);
    for (int i = 0; fits && padding && i < 3; i++)
        fits = attn_tensor_length(padding, i) == shape[i];
    if (!fits) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE, "sines of positions: padding u8 [%lld,%lld,%lld] wanted",
                   (long long)shape[0], (long long)shape[1], (long long)shape[2]);
    }
    return fits;
}

attn_tensor *attn_nn_sine_positions_forward(const attn_nn_sine_positions *layer, attn_tape *tape, attn_dtype dtype,
                                            const int64_t shape[3], const attn_tensor *padding)
{
    if (!accepts(layer, tape, shape, padding))
        return NULL;
    int64_t rows = shape[1], cols = shape[2], wide = 2 * layer->feats;
    attn_tensor *out = attn_tape_tensor(tape, dtype, 4, (int64_t[]){shape[0], rows, cols, wide}, NULL);
    const uint8_t *pads = padding ? attn_tensor_data(padding) : NULL;
    for (int64_t i = 0; out && i < shape[0] * rows * cols; i++) {
        int64_t image = i / (rows * cols), y = i / cols % rows, x = i % cols;
        line column = {pads ? pads + image * rows * cols + x : NULL, rows, cols};
        line row = {pads ? pads + (image * rows + y) * cols : NULL, cols, 1};
        put_axis(layer, out, i * wide, position_on(layer, &column, y));
        put_axis(layer, out, i * wide + layer->feats, position_on(layer, &row, x));
    }
    return out;
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
                   "learned positions: an image of %lld x %lld; sides of 1 to %lld "
                   "have positions",
                   (long long)rows, (long long)cols, (long long)most);
        return NULL;
    }
    attn_tensor *col = spread(tape, layer->col, rows, cols, false), *row = spread(tape, layer->row, rows, cols, true);
    return attn_concat(tape, (attn_tensor *[]){col, row}, 2, 2);
}
