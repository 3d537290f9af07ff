/* SPDX-License-Identifier: MIT
 *
 * axial.h - layers of axial transformers over images and videos, whose channels may be at any axis: positions,
 * the norm of channels, blocks with a mask along one axis.
 *
 * Built and run as described in layers.h.  Self-attention along an axis is attn_nn_self_attention_axis there.  Letters: B
 * batch, C and D channels, Y rows and X columns of an image.
 *
 * Results belong to the tape; threads as in layers.h.
 */
#ifndef ATTN_NN_AXIAL_H
#define ATTN_NN_AXIAL_H

#include "nn/layers.h"

/* Normalization over the channels of x [B,C,Y,X]: (x - mean) / (std + eps) * g + b, parameters g, b [1,C,1,1].  As in
 * lucidrains/axial-attention, eps is added to the deviation and not to the variance. */
typedef struct attn_nn_channel_norm {
    attn_tensor *g, *b;
    double eps;
} attn_nn_channel_norm;
/* eps 0: 1e-5. */
void attn_nn_channel_norm_init(attn_nn_channel_norm *layer, attn_nn_builder *builder, int64_t channels, double eps);
/* x [B,C,Y,X] -> the same. */
attn_tensor *attn_nn_channel_norm_forward(const attn_nn_channel_norm *layer, attn_tape *tape, attn_tensor *x);

/* How positions that were learned for one size are used for another. */
typedef enum attn_nn_positions_fit {
    ATTN_POSITIONS_EXACT = 0, /* another size is an error */
    ATTN_POSITIONS_SLICE,     /* the first positions; a larger size is an error */
    ATTN_POSITIONS_LINEAR,    /* interpolated, see attn_interpolate */
    ATTN_POSITIONS_CUBIC
} attn_nn_positions_fit;

/* One learned vector for each position along each axis, summed: parameters param_{i} of shape 1 but for the channels and
 * the i-th of the other axes (Ho et al. 2019, arXiv:1912.12180).  For an image of Y x X these are Y + X vectors, not
 * Y * X. */
typedef struct attn_nn_axial_positions {
    int axes, channel; /* without batch and channels; the axis of the channels */
    attn_nn_positions_fit fit;
    attn_tensor *param[ATTN_MAX_RANK];
} attn_nn_axial_positions;
/* shape: the lengths of the axes but batch and channels.  channel: 1 to axes+1, or counted from the end if negative.
 * Starts from N(0, 1).  ATTN_ERROR_ARGUMENT: none or too many axes, no such axis for the channels. */
void attn_nn_axial_positions_init(attn_nn_axial_positions *layer, attn_nn_builder *builder, int64_t dim, int axes,
                                  const int64_t *shape, int channel, attn_nn_positions_fit fit);
/* x + positions.  ATTN_ERROR_SHAPE: another rank or number of channels, or a size that `fit` does not allow.  x [B,...],
 * with the channels at axis `channel` -> the same. */
attn_tensor *attn_nn_axial_positions_forward(const attn_nn_axial_positions *layer, attn_tape *tape, attn_tensor *x);

/* Multi-head attention of x [...,D] to itself along `axis`, the axes before the last but that one being batch; with a
 * mask, positions see themselves and those before.  Nothing is permuted.  ATTN_ERROR_SHAPE; ATTN_ERROR_UNSUPPORTED: a
 * score other than the dot product, no last projection.  *weights as of attn_nn_self_attention_axis. */
attn_tensor *attn_nn_multi_head_axis(const attn_nn_multi_head *layer, attn_tape *tape, attn_tensor *x, int axis,
                                     attn_causal causal, attn_tensor **weights);

/* A pre-norm block along one axis: x += attention(ln1(x)), x += dense2(gelu(dense1(ln2(x)))), every projection with a
 * bias, the hidden width as wide as the rest, and GELU as x sigmoid(1.702 x) (Ho et al. 2019). */
typedef struct attn_nn_axial_block {
    attn_nn_layer_norm ln1, ln2;
    attn_nn_multi_head attention;
    attn_nn_linear dense1, dense2;
    double dropout; /* of what is added to x */
} attn_nn_axial_block;
typedef struct attn_nn_axial_block_options {
    int64_t dim, heads;
    double dropout;
    double
        residual_scale; /* W_o and dense2 start that much smaller than usual: near 0 a block begins as the identity */
} attn_nn_axial_block_options;
void attn_nn_axial_block_init(attn_nn_axial_block *block, attn_nn_builder *builder,
                              const attn_nn_axial_block_options *options);
/* x [...,D] -> the same; weights as above. */
attn_tensor *attn_nn_axial_block_forward(const attn_nn_axial_block *block, attn_tape *tape, attn_tensor *x, int axis,
                                         attn_causal causal, attn_tensor **weights);
/* The next position of each row of a masked axis: x [rows,1,D]; `cache` [rows] gets its keys and values. */
attn_tensor *attn_nn_axial_block_step(const attn_nn_axial_block *block, attn_tape *tape, attn_tensor *x,
                                      attn_nn_kv_cache *cache);

#endif
