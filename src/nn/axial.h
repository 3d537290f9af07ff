/* SPDX-License-Identifier: MIT
 *
 * axial.h - layers of axial transformers over images and videos with channels at any axis: positions, channel norm,
 * blocks with a mask along one axis.
 *
 * Build and run them as described in layers.h. Self-attention along an axis is attn_nn_self_attention_axis there.
 * Letters: B batch, C and D channels, Y rows and X columns of an image.
 *
 * Results belong to the tape; threads as in layers.h. */
#ifndef ATTN_NN_AXIAL_H
#define ATTN_NN_AXIAL_H

#include "nn/layers.h"

/* Normalization over the channels of x [B,C,Y,X]: (x - mean) / (std + eps) * g + b, with parameters g, b [1,C,1,1]. As
 * in lucidrains/axial-attention, eps is added to the deviation, not to the variance. */
typedef struct attn_nn_channel_norm {
    attn_tensor *g, *b;
    double eps;
} attn_nn_channel_norm;
/* eps 0: 1e-5. */
void attn_nn_channel_norm_init(attn_nn_channel_norm *layer, attn_nn_builder *builder, int64_t channels, double eps);
/* x [B,C,Y,X] -> the same. */
attn_tensor *attn_nn_channel_norm_forward(const attn_nn_channel_norm *layer, attn_tape *tape, attn_tensor *x);

/* How learned positions are used for another size. */
typedef enum attn_nn_positions_fit {
    ATTN_POSITIONS_EXACT = 0, /* another size is an error */
    ATTN_POSITIONS_SLICE,     /* the first positions are used; a larger size is an error */
    ATTN_POSITIONS_LINEAR,    /* interpolated, see attn_interpolate */
    ATTN_POSITIONS_CUBIC
} attn_nn_positions_fit;

/* One learned vector for each position along each axis, summed over the axes (Ho et al. 2019, arXiv:1912.12180).
 * Parameter param_{i} has length 1 along all axes except the channels and the i-th other axis. An image of Y x X has Y
 * + X vectors, not Y * X. */
typedef struct attn_nn_axial_positions {
    int axes, channel; /* number of axes except batch and channels; number of the channels' axis */
    attn_nn_positions_fit fit;
    attn_tensor *param[ATTN_MAX_RANK];
} attn_nn_axial_positions;
/* shape: the lengths of the axes except batch and channels. channel: 1 to axes+1, or negative to count from the end.
 * Initialized from N(0, 1). ATTN_ERROR_ARGUMENT: no axis or too many, or an invalid channel axis. */
void attn_nn_axial_positions_init(attn_nn_axial_positions *layer, attn_nn_builder *builder, int64_t dim, int axes,
                                  const int64_t *shape, int channel, attn_nn_positions_fit fit);
/* x + positions; x [B,...] with the channels at axis `channel` -> the same shape. ATTN_ERROR_SHAPE: another rank or
 * number of channels, or a size that `fit` does not allow. */
attn_tensor *attn_nn_axial_positions_forward(const attn_nn_axial_positions *layer, attn_tape *tape, attn_tensor *x);

/* Multi-head self-attention of x [...,D] along `axis`; all other axes except the last are batch. With a mask, a
 * position attends itself and earlier positions. No axes are permuted. ATTN_ERROR_SHAPE; ATTN_ERROR_UNSUPPORTED: a
 * score other than the dot product, or no output projection. *weights as in attn_nn_self_attention_axis. */
attn_tensor *attn_nn_multi_head_axis(const attn_nn_multi_head *layer, attn_tape *tape, attn_tensor *x, int axis,
                                     attn_causal causal, attn_tensor **weights);

/* A pre-norm block along one axis: x += attention(ln1(x)), x += dense2(gelu(dense1(ln2(x)))), every projection with a
 * bias, the hidden width equal to D, and GELU as x sigmoid(1.702 x) (Ho et al. 2019). */
typedef struct attn_nn_axial_block {
    attn_nn_layer_norm ln1, ln2;
    attn_nn_multi_head attention;
    attn_nn_linear dense1, dense2;
    double dropout; /* dropout of the two branches */
} attn_nn_axial_block;
typedef struct attn_nn_axial_block_options {
    int64_t dim, heads;
    double dropout;
    double residual_scale; /* factor of the initial W_o and dense2: near 0 a new block is nearly the identity */
} attn_nn_axial_block_options;
void attn_nn_axial_block_init(attn_nn_axial_block *block, attn_nn_builder *builder,
                              const attn_nn_axial_block_options *options);
/* x [...,D] -> the same shape; weights as in attn_nn_self_attention_axis. */
attn_tensor *attn_nn_axial_block_forward(const attn_nn_axial_block *block, attn_tape *tape, attn_tensor *x, int axis,
                                         attn_causal causal, attn_tensor **weights);
/* Computes the next position of each row of a masked axis: x [rows,1,D]; `cache` [rows] gets its keys and values. */
attn_tensor *attn_nn_axial_block_step(const attn_nn_axial_block *block, attn_tape *tape, attn_tensor *x,
                                      attn_nn_kv_cache *cache);

#endif
