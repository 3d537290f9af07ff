/* SPDX-License-Identifier: MIT
 *
 * axial.h - layers of axial transformers over images and videos: positions, channel norm, and blocks with a mask along
 * one axis. The channels can be at any axis.
 *
 * layers.h describes how to build and run layers. It also has self-attention along one axis,
 * attn_nn_self_attention_axis. Letters: B batch, C and D channels, Y rows and X columns of an image.
 *
 * Results belong to the tape. The rules for threads are those of layers.h. */
#ifndef ATTN_NN_AXIAL_H
#define ATTN_NN_AXIAL_H

#include "nn/layers.h"

/* Normalizes x [B,C,Y,X] over its channels: (x - mean) / (std + eps) * g + b. The parameters g and b have the shape
 * [1,C,1,1]. mean and std are those of the C channels of a pixel. As in lucidrains/axial-attention, eps is added to the
 * standard deviation, not to the variance. */
typedef struct attn_nn_channel_norm {
    attn_tensor *g, *b;
    double eps;
} attn_nn_channel_norm;
/* eps 0: 1e-5. */
void attn_nn_channel_norm_init(attn_nn_channel_norm *layer, attn_nn_builder *builder, int64_t channels, double eps);
/* Normalizes x [B,C,Y,X]. Returns the same shape. */
attn_tensor *attn_nn_channel_norm_forward(const attn_nn_channel_norm *layer, attn_tape *tape, attn_tensor *x);

/* How learned positions are fitted to an input of another size. */
typedef enum attn_nn_positions_fit {
    ATTN_POSITIONS_EXACT = 0, /* an input of another size is an error */
    ATTN_POSITIONS_SLICE,     /* only the first positions are used; a larger input is an error */
    ATTN_POSITIONS_LINEAR,    /* positions are interpolated linearly, see attn_interpolate */
    ATTN_POSITIONS_CUBIC
} attn_nn_positions_fit;

/* Learned positions with one vector for each index of each axis. The vectors are summed over the axes (Ho et al. 2019,
 * arXiv:1912.12180). The vectors of axis i are the parameter param_{i}, where i counts all axes except the batch axis
 * and the channels' axis. The length of param_{i} is 1 along all axes except axis i and the channels' axis. An image of
 * Y x X thus has Y + X vectors, not Y * X. */
typedef struct attn_nn_axial_positions {
    int axes, channel; /* axes: number of axes other than batch and channels; channel: index of the channels' axis */
    attn_nn_positions_fit fit;
    attn_tensor *param[ATTN_MAX_RANK];
} attn_nn_axial_positions;
/* Initializes the positions from N(0, 1). `shape` holds the lengths of the axes other than batch and channels.
 * `channel` is the index of the channels' axis, from 1 to axes+1, or a negative index that counts from the end.
 * ATTN_ERROR_ARGUMENT: there is no axis, there are too many axes, or the channels' axis is invalid. */
void attn_nn_axial_positions_init(attn_nn_axial_positions *layer, attn_nn_builder *builder, int64_t dim, int axes,
                                  const int64_t *shape, int channel, attn_nn_positions_fit fit);
/* Returns x plus the positions, in the shape of x [B,...], whose channels are at axis `channel`. ATTN_ERROR_SHAPE: x
 * has another rank or number of channels, or a size that `fit` does not allow. */
attn_tensor *attn_nn_axial_positions_forward(const attn_nn_axial_positions *layer, attn_tape *tape, attn_tensor *x);

/* Computes multi-head self-attention of x [...,D] along `axis`. All other axes except the last are batch axes. With a
 * causal mask, a position attends only to itself and to earlier positions. No axes are permuted. *weights is as in
 * attn_nn_self_attention_axis. ATTN_ERROR_SHAPE: the axis does not fit x. ATTN_ERROR_UNSUPPORTED: the score is not the
 * dot product, or the layer has no output projection. */
attn_tensor *attn_nn_multi_head_axis(const attn_nn_multi_head *layer, attn_tape *tape, attn_tensor *x, int axis,
                                     attn_causal causal, attn_tensor **weights);

/* A pre-norm block along one axis: x += attention(ln1(x)), x += dense2(gelu(dense1(ln2(x)))), with a hidden width of D.
 * Every projection has a bias, and GELU is x sigmoid(1.702 x) (Ho et al. 2019). */
typedef struct attn_nn_axial_block {
    attn_nn_layer_norm ln1, ln2;
    attn_nn_multi_head attention;
    attn_nn_linear dense1, dense2;
    double dropout; /* dropout of the results of the attention branch and of the feed-forward branch */
} attn_nn_axial_block;
typedef struct attn_nn_axial_block_options {
    int64_t dim, heads;
    double dropout;
    /* factor of the initial values of W_o and dense2; if it is near 0, a new block is nearly the identity */
    double residual_scale;
} attn_nn_axial_block_options;
void attn_nn_axial_block_init(attn_nn_axial_block *block, attn_nn_builder *builder,
                              const attn_nn_axial_block_options *options);
/* Runs the block on x [...,D] and returns the same shape. *weights is as in attn_nn_self_attention_axis. */
attn_tensor *attn_nn_axial_block_forward(const attn_nn_axial_block *block, attn_tape *tape, attn_tensor *x, int axis,
                                         attn_causal causal, attn_tensor **weights);
/* Computes the block's result for the next position of each row, from x [rows,1,D]. The axis is causally masked. The
 * keys and values of the new position are appended to `cache` [rows]. */
attn_tensor *attn_nn_axial_block_step(const attn_nn_axial_block *block, attn_tape *tape, attn_tensor *x,
                                      attn_nn_kv_cache *cache);

#endif
