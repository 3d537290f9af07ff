/* SPDX-License-Identifier: MIT
 *
 * spatial.h - layers over signals, images and volumes [B,C,spatial...], with channels before the spatial axes as in
 * PyTorch: convolution, batch norm, stand-alone and local self-attention, non-local blocks, generalized attention,
 * DETR's positions, and the Vision Transformer's block.
 *
 * layers.h describes how to build and run layers. Operations without parameters are in tensor.h: attn_max_pool,
 * attn_avg_pool, attn_activate (ReLU, leaky ReLU, the three kinds of GELU), attn_dropout. Letters: B batch, C channels,
 * Y rows and X columns of an image, N their product, H heads, Dh channels of a head.
 *
 * Results belong to the tape. The rules for threads are those of layers.h. */
#ifndef ATTN_NN_SPATIAL_H
#define ATTN_NN_SPATIAL_H

#include "nn/layers.h"

/* --------------------------------------------------------------------------------- convolution and norms */

typedef struct attn_nn_conv_options {
    int spatial; /* axes: 1 to 3 */
    int64_t in_channels, out_channels;
    int64_t kernel[3], stride[3], padding[3]; /* kernel and stride: 0 means 1 */
    /* groups: 0 means 1; it must divide in_channels and out_channels; dilation: the same for all axes */
    int64_t groups, dilation;
    bool bias;
    attn_activation activation;
    /* initial values of the weight; if the struct is all zero, `zero` or the builder's policy decides */
    attn_nn_initializer fill;
    bool zero; /* true: weight and bias start at zero, so that a residual branch begins as the identity */
} attn_nn_conv_options;
/* A convolution: weight [out,in/groups,kernel...], bias [out]. */
typedef struct attn_nn_conv {
    attn_tensor *weight, *bias;
    attn_conv geometry;
} attn_nn_conv;
/* ATTN_ERROR_ARGUMENT: the number of axes is not 1 to 3, the groups do not divide the channels, or the activation is
 * unknown. */
void attn_nn_conv_init(attn_nn_conv *layer, attn_nn_builder *builder, const attn_nn_conv_options *options);
/* Applies the convolution to x [B,in,spatial...]. Returns [B,out,spatial'...] with spatial' = (spatial + 2 padding -
 * dilation (kernel - 1) - 1) / stride + 1. */
attn_tensor *attn_nn_conv_forward(const attn_nn_conv *layer, attn_tape *tape, attn_tensor *x);

/* A batch norm with weight and bias [C], and the buffers running_mean, running_var [C] and num_batches_tracked.
 * num_batches_tracked is a scalar that exists only because PyTorch's files have it. It is loaded but not used. In
 * training the batch's statistics are used, and the running statistics move towards the batch's statistics by
 * `momentum` (Ioffe and Szegedy 2015, arXiv:1502.03167).
 */
typedef struct attn_nn_batch_norm {
    attn_tensor *weight, *bias, *running_mean, *running_var;
    double momentum, eps;
} attn_nn_batch_norm;
/* Initializes the layer with PyTorch's momentum 0.1 and eps 1e-5. If `zero` is true, the weight starts at zero,
 * otherwise at one. */
void attn_nn_batch_norm_init(attn_nn_batch_norm *layer, attn_nn_builder *builder, int64_t channels, bool zero);
/* Normalizes x [B,C,...] and returns the same shape. */
attn_tensor *attn_nn_batch_norm_forward(const attn_nn_batch_norm *layer, attn_tape *tape, attn_tensor *x);

/* Kinds of norms after convolutions of images. */
typedef enum attn_nn_map_norm_kind {
    ATTN_NN_NORM_FROZEN = 0, /* batch norm with fixed statistics, weight and bias, which are four buffers */
    ATTN_NN_NORM_BATCH,
    /* group norm with weight and bias; mean and variance are computed for each group of channels of each image (Wu
     * and He 2018, arXiv:1803.08494) */
    ATTN_NN_NORM_GROUP
} attn_nn_map_norm_kind;
typedef struct attn_nn_map_norm {
    attn_nn_map_norm_kind kind;
    attn_nn_batch_norm batch; /* parameters of the norm; a group norm uses only weight, bias and eps */
    int64_t groups;
} attn_nn_map_norm;
/* Initializes the layer with eps 1e-5. ATTN_ERROR_ARGUMENT: the groups do not divide the channels. */
void attn_nn_map_norm_init(attn_nn_map_norm *layer, attn_nn_builder *builder, attn_nn_map_norm_kind kind,
                           int64_t channels, int64_t groups);
/* Returns activation(norm(convolution(x)) + addend). The addend has the same shape or is NULL. If the statistics of the
 * norm do not come from the batch, the norm is merged into the convolution, as a scale and a shift of its channels. If
 * it is merged and no gradients are recorded, the result takes over the addend's memory. `conv` must have neither bias
 * nor activation. */
attn_tensor *attn_nn_conv_normed(const attn_nn_conv *conv, const attn_nn_map_norm *norm, attn_tape *tape,
                                 attn_tensor *x, attn_tensor *addend, attn_activation activation);

/* ------------------------------------------------------------------------- self-attention over an image */

typedef struct attn_nn_image_attention_options {
    int64_t in_channels, mid, out_channels, heads; /* mid: channels of each head */
    /* maximum side of an image if there is no window; the table of relative positions has this size */
    int64_t max_positions;
    /* number of keys along each axis of the window, an odd number; 0: every pixel attends to every pixel */
    int64_t window;
    int64_t stride; /* stride of the windows' centres; 0: 1 */
    attn_border border;
    /* true: add q . r to the score, where r is the vector of the relative position: the row's half, then the
     * column's half */
    bool relative;
    /* true: row positions use the first half of the channels of all heads together, and column positions the second
     * half; false: they use the halves of each head's channels */
    bool whole;
    /* true: channel c of head h is channel h * mid + c of the array; false: it is channel c * heads + h */
    bool head_major;
    bool per_channel; /* true: each channel is a head of its own */
    /* bias: the four projections have biases; project: `wout` exists, otherwise out_channels must be heads * mid */
    bool bias, project;
    double scale; /* scale of the scores; 0: 1 / sqrt(in) */
} attn_nn_image_attention_options;
/* Stand-alone self-attention (Ramachandran et al. 2019, arXiv:1906.05909). The convolutions query, key and value have a
 * .weight [heads*mid,in,1,1] and a .bias, and wout has a .weight [out,heads*mid,1,1] and a .bias. The relative
 * positions are row_embedding.weight and col_embedding.weight, of shape [R,mid/2], or [R,heads*mid/2] with `whole`.
 * Their row for a pair is key - query + (R-1)/2. Without a window, R is 2*max_positions-1. With a window, R is
 * `window`. With a window and ATTN_BORDER_SHIFT, R is 2*window-1, because a window at the border reaches further to one
 * side. */
typedef struct attn_nn_image_attention {
    attn_nn_conv query, key, value, wout;
    attn_tensor *row, *col;
    attn_nn_image_attention_options options;
} attn_nn_image_attention;
/* ATTN_ERROR_ARGUMENT: the window is even, the number of channels to halve is odd, or there is no `wout` while
 * out_channels is not heads * mid. */
void attn_nn_image_attention_init(attn_nn_image_attention *layer, attn_nn_builder *builder,
                                  const attn_nn_image_attention_options *options);
/* Applies the layer to x [B,in,Y,X]. Returns [B,out,Y',X'] with Y' = ceil(Y / stride) and X' = ceil(X / stride).
 * *weights (may be NULL) gets [B,H,Y',X',Ky,Kx], where Ky and Kx are the sides of the window or of the whole image.
 * ATTN_ERROR_SHAPE: x is no image, or is larger than max_positions. */
attn_tensor *attn_nn_image_attention_forward(const attn_nn_image_attention *layer, attn_tape *tape, attn_tensor *x,
                                             attn_tensor **weights);

/* The attention stem (Ramachandran et al. 2019, section 3.2). The pixels of each block of 4 x 4 pixels attend to each
 * other. y_ij = sum_ab softmax_ab(q_ij . k_ab) sum_m p(a,b,m) W_m x_ab, p(a,b,m) = softmax_m((row_a + col_b) . nu_m).
 * Pixel ij attends to the pixels ab. The weights depend only on the pixels' content. The values also depend on the
 * position ab in the block. There is one head and no scale. Parameters: emb_a and emb_b [out,4] (row, col), emb_mix
 * [4,out] (nu), and query_conv, key_conv, value_conv.{m}.weight [out,in,1,1]. */
enum { ATTN_NN_STEM_SIDE = 4, ATTN_NN_STEM_MIXED = 4 };
typedef struct attn_nn_attention_stem {
    attn_tensor *rows, *columns, *mix;
    attn_nn_conv query, key, value[ATTN_NN_STEM_MIXED];
} attn_nn_attention_stem;
void attn_nn_attention_stem_init(attn_nn_attention_stem *layer, attn_nn_builder *builder, int64_t in, int64_t out);
/* Applies the stem to x [B,in,Y,X]. Returns [B,out,N,16], where N = (Y/4)(X/4) is the number of blocks. Blocks are in
 * order row by row, and each block has 16 pixels. Rows and columns beyond a multiple of 4 are left out.
 * ATTN_ERROR_SHAPE: a side of x is below 4. */
attn_tensor *attn_nn_attention_stem_forward(const attn_nn_attention_stem *layer, attn_tape *tape, attn_tensor *x);

/* ------------------------------------------------------------------------------------- non-local blocks */

typedef enum attn_nn_pairwise {
    ATTN_PAIRWISE_EMBEDDED = 0, /* softmax of theta(x) . phi(x), the projected queries and keys, without a scale */
    ATTN_PAIRWISE_GAUSSIAN,     /* softmax of x . x, without projections */
    ATTN_PAIRWISE_DOT,          /* theta(x) . phi(x) / N, where N is the number of keys */
    ATTN_PAIRWISE_CONCAT        /* relu(w . [theta(x), phi(x)]) / N, with a learned vector w */
} attn_nn_pairwise;
/* A non-local block (Wang et al. 2018, arXiv:1711.07971): z = x + W(sum_j f(x_i, x_j) g(x_j)), where f is the weight of
 * the pair (see attn_nn_pairwise). Its parameters are g, theta, phi and W. With sub-sampling the names are g.0 and
 * phi.0, and with batch norm W.0 (convolution) and W.1 (norm). ATTN_PAIRWISE_CONCAT adds concat_project.0.weight
 * [1,2*inter,1,1], whose first half is for theta. W (or W.1) starts at zero, so that a new block is the identity.
 * Sub-sampling is max pooling of the keys by 2, in volumes only along rows and columns. N in attn_nn_pairwise is the
 * number of keys after sub-sampling. */
typedef struct attn_nn_non_local {
    attn_nn_conv g, theta, phi, w;
    attn_nn_batch_norm norm;
    attn_tensor *concat;
    attn_nn_pairwise pairwise;
    int spatial;
    int64_t inter;
    bool sub_sample, batch_norm;
} attn_nn_non_local;
/* inter 0 means in / 2, but at least 1. spatial: number of axes, 1 to 3. */
void attn_nn_non_local_init(attn_nn_non_local *layer, attn_nn_builder *builder, int64_t in, int64_t inter, int spatial,
                            attn_nn_pairwise pairwise, bool sub_sample, bool batch_norm);
/* Applies the block to x [B,in,spatial...] and returns the same shape. *weights (may be NULL) gets [B,N,Nk], where N
 * is the number of positions and Nk the number of keys. Memory of N times Nk is allocated only if the weights are
 * requested. ATTN_ERROR_SHAPE: x is too small to be sub-sampled. */
attn_tensor *attn_nn_non_local_forward(const attn_nn_non_local *layer, attn_tape *tape, attn_tensor *x,
                                       attn_tensor **weights);

/* ------------------------------------------------------------------------------- generalized attention */

enum { /* terms of the score, as bits that can be combined */
       ATTN_FACTOR_QUERY_KEY = 1,
       ATTN_FACTOR_QUERY_RELPOS = 2,
       ATTN_FACTOR_KEY_ONLY = 4,
       ATTN_FACTOR_RELPOS_ONLY = 8
};
/* Generalized attention (Zhu et al. 2019, arXiv:1904.05873): x + gamma * proj(attention). A score is the sum of the
 * terms of q.k + q.R + u.k + v.R that `factors` selects. u and v are learned vectors. R is the vector of the relative
 * position, (fc_x(sines of the column distance) + fc_y(sines of the row distance)) / sqrt(2). P is the number of sines.
 * The parameters are named as in mmcv: query_conv, key_conv, value_conv .weight [H*Dh,C,1,1], appr_geom_fc_x,
 * appr_geom_fc_y .weight [H*Dh,P/2], appr_bias (u), geom_bias (v) [H*Dh], proj_conv.{weight,bias}, gamma [1], which
 * starts at zero. */
typedef struct attn_nn_generalized_attention {
    attn_nn_conv query, key, value, proj;
    attn_nn_linear fc_x, fc_y;
    attn_tensor *u, *v, *gamma;
    unsigned factors;
    int64_t heads, dim_head, position_dim;
    double magnitude;
} attn_nn_generalized_attention;
typedef struct attn_nn_generalized_attention_options {
    int64_t dim, heads, dim_head; /* channels of a head; 0: dim / heads, rounded down */
    unsigned factors;             /* sum of ATTN_FACTOR_... bits; 0: all four terms */
    /* number of sine features P, a multiple of 4; 0: dim rounded down to a multiple of 4 */
    int64_t position_dim;
    double magnitude; /* factor that multiplies the distances before their sines are computed; 0: 1 */
} attn_nn_generalized_attention_options;
void attn_nn_generalized_attention_init(attn_nn_generalized_attention *layer, attn_nn_builder *builder,
                                        const attn_nn_generalized_attention_options *options);
/* Applies the layer to x [B,C,Y,X] and returns the same shape. *weights (weights may be NULL) gets [B,H,Y,X,Y,X].
 * With ATTN_FACTOR_KEY_ONLY alone, *weights gets [B,H,1,1,Y,X]. */
attn_tensor *attn_nn_generalized_attention_forward(const attn_nn_generalized_attention *layer, attn_tape *tape,
                                                   attn_tensor *x, attn_tensor **weights);

/* ------------------------------------------------------------------------------------ DETR's positions */

/* Positions as sines of rows and columns (Carion et al. 2020, arXiv:2005.12872, appendix). The first `feats`
 * channels are for the ROW, the others for the column. The position of a pixel in its row or column is the number of
 * unpadded pixels up to and including this pixel, so positions start at 1. */
typedef struct attn_nn_sine_positions {
    int64_t feats; /* even */
    /* scale: if it is 0, positions are not normalized; otherwise positions are divided by the last position and
     * multiplied by the scale */
    double temperature, scale;
} attn_nn_sine_positions;
/* Returns the positions [B,Y,X,2*feats] of the type `dtype`. padding: U8 [B,Y,X], nonzero where there is no image,
 * or NULL. */
attn_tensor *attn_nn_sine_positions_forward(const attn_nn_sine_positions *layer, attn_tape *tape, attn_dtype dtype,
                                            const int64_t shape[3], const attn_tensor *padding);

/* Learned positions of rows and columns: row_embed.weight, col_embed.weight [most,feats]. The first channels are for
 * the COLUMN, which is the opposite order of the sine positions. */
typedef struct attn_nn_learned_positions {
    attn_tensor *row, *col;
} attn_nn_learned_positions;
void attn_nn_learned_positions_init(attn_nn_learned_positions *layer, attn_nn_builder *builder, int64_t feats,
                                    int64_t most);
/* Returns the positions [Y,X,2*feats]. ATTN_ERROR_SHAPE: a side is longer than `most`. */
attn_tensor *attn_nn_learned_positions_forward(const attn_nn_learned_positions *layer, attn_tape *tape, int64_t rows,
                                               int64_t cols);

/* --------------------------------------------------------------------------------- Vision Transformer */

/* A block of the Vision Transformer: y = x + attention(ln1(x)), then y + dense2(gelu(dense1(ln2(y)))). Parameters:
 * ln1.*, attention.{W_q,W_k,W_v,W_o}.*, ln2.*, mlp.dense1.*, mlp.dense2.* (Dosovitskiy et al. 2021, arXiv:2010.11929,
 * with the names of Dive into Deep Learning). */
typedef struct attn_nn_vit_block {
    attn_nn_layer_norm ln1, ln2;
    attn_nn_multi_head attention;
    attn_nn_linear dense1, dense2;
    attn_activation activation;
    double dropout;
} attn_nn_vit_block;
typedef struct attn_nn_vit_block_options {
    int64_t hidden, mlp_hidden, heads;
    attn_activation activation;
    double dropout, eps;
    bool bias; /* whether the attention's projections have biases */
} attn_nn_vit_block_options;
void attn_nn_vit_block_init(attn_nn_vit_block *block, attn_nn_builder *builder,
                            const attn_nn_vit_block_options *options);
/* Runs the block on x [B,T,D] and returns the same shape. `mask` may be NULL. *weights (may be NULL) gets
 * [B,H,T,T]. */
attn_tensor *attn_nn_vit_block_forward(const attn_nn_vit_block *block, attn_tape *tape, attn_tensor *x,
                                       const attn_nn_mask *mask, attn_tensor **weights);

/* Initializes the projection of an image's patches of height x width pixels: a convolution with the patch as kernel
 * and stride. Its parameters are conv.weight [D,C,Py,Px] and conv.bias [D]. The patches are copied to the rows of
 * one matrix and multiplied together. */
void attn_nn_patches_init(attn_nn_conv *conv, attn_nn_builder *builder, int64_t channels, int64_t hidden,
                          int64_t height, int64_t width);
/* Projects the patches of x [B,C,Y,X]. Returns [B,(Y/Py)*(X/Px),D], patches row by row. Rows and columns that do not
 * fill a patch are left out. ATTN_ERROR_SHAPE: x has another number of channels, or is smaller than a patch. */
attn_tensor *attn_nn_patches_forward(const attn_nn_conv *conv, attn_tape *tape, attn_tensor *x);

/* -------------------------------------------------------------------- position-sensitive axial attention */

/* Attention along one axis of an image, with positions in scores and values (Wang et al. 2020, arXiv:2003.07853). The
 * score is norm(q.k) + norm(q.Rq) + norm(k.Rk), and the result is norm(P v) + norm(P Rv). P is the softmax of the
 * scores. Rq, Rk and Rv are learned vectors of the relative position. The parameters have the names of Axial-DeepLab:
 * qkv_transform.weight [2*out,in,1] (each group's queries, keys, values), bn_qkv, bn_similarity [3*groups], bn_output
 * [2*out], relative [2*out/groups,2*length-1], and the buffer flatten_index, which is not used. */
typedef struct attn_nn_position_sensitive_attention {
    attn_nn_conv qkv;
    attn_nn_batch_norm norm_qkv, norm_similarity, norm_output;
    attn_tensor *relative;
    int64_t groups, length;
    int axis;
} attn_nn_position_sensitive_attention;
/* `axis` is 2 for attention along the columns, 3 for attention along the rows. ATTN_ERROR_ARGUMENT: 2*groups does not
 * divide out. */
void attn_nn_position_sensitive_attention_init(attn_nn_position_sensitive_attention *layer, attn_nn_builder *builder,
                                               int64_t in, int64_t out, int64_t groups, int64_t length, int axis);
/* Applies the layer to x [B,in,Y,X]. Returns [B,out,Y,X]; *weights (weights may be NULL) gets
 * [B,lines,groups,length,length]. ATTN_ERROR_SHAPE: the axis has another length than the layer's. */
attn_tensor *attn_nn_position_sensitive_attention_forward(const attn_nn_position_sensitive_attention *layer,
                                                          attn_tape *tape, attn_tensor *x, attn_tensor **weights);

#endif
