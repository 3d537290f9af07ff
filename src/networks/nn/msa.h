/* SPDX-License-Identifier: MIT
 *
 * msa.h - layers over alignments of sequences (Rao et al. 2021, MSA Transformer, doi:10.1101/2021.02.12.430858),
 * with the parameter names of facebookresearch/esm. As in layers.h, errors stick and layers own nothing.
 *
 * Fixed letters: R rows (sequences), C columns, B alignments of a batch, D channels, H heads, F hidden channels.
 *
 * Results belong to the tape. The rules for threads are those of layers.h. */
#ifndef ATTN_NN_MSA_H
#define ATTN_NN_MSA_H

#include "nn/layers.h"

/* Attention along the rows or the columns of alignments x [R,C,B,D], with parameters {q,k,v,out}_proj.{weight,bias}.
 * Row attention is tied: all rows share one attention map, whose scores are scaled by 1/sqrt(D/H * R). Returned weights
 * are the weights after dropout. */
typedef struct attn_nn_msa_attention {
    attn_nn_linear q, k, v, out;
    int64_t heads;
    double dropout, fill; /* fill: score of padded keys, -10000 in the original; 0: padded keys are left out */
    /* Chooses the R in the scale of tied row attention. If true, R is the number of rows of the alignment, without rows
     * that are all padding. The result then does not depend on other alignments of the batch. If false, R is the
     * batch's number of rows, as in the original. */
    bool own_depth;
    /* true: each row has its own attention map and its own padding, and scores are scaled by 1/sqrt(D/H) */
    bool untied;
} attn_nn_msa_attention;
/* ATTN_ERROR_ARGUMENT: `heads` does not divide `dim`. */
void attn_nn_msa_attention_init(attn_nn_msa_attention *layer, attn_nn_builder *builder, int64_t dim, int64_t heads,
                                double dropout, double fill);
/* Attends along the rows of x. `keep` is U8 [B,R,C], zero for padding, or NULL. *weights gets [H,B,C,C], or
 * [H,R,B,C,C] if the layer is untied. If it is tied, padded queries are left out of the sum over rows, and the
 * padding of the first row decides which keys are visible. */
attn_tensor *attn_nn_msa_attention_rows(const attn_nn_msa_attention *layer, attn_tape *tape, attn_tensor *x,
                                        const attn_tensor *keep, attn_tensor **weights);
/* Attends along the columns of x. *weights gets [H,C,B,R,R]. If there is only one row, the result is
 * out_proj(v_proj(x)). */
attn_tensor *attn_nn_msa_attention_columns(const attn_nn_msa_attention *layer, attn_tape *tape, attn_tensor *x,
                                           const attn_tensor *keep, attn_tensor **weights);

/* A layer of the MSA Transformer: three residual blocks x + dropout(f(layer_norm(x))). The function f is tied row
 * attention in the first block, column attention in the second, and fc2(dropout(gelu(fc1 x))) with the exact GELU in
 * the third. Parameters: row_self_attention.{layer_norm,layer}.*, column_self_attention.*,
 * feed_forward_layer.{layer_norm.*,layer.{fc1,fc2}.*}. */
typedef struct attn_nn_msa_layer {
    attn_nn_msa_attention rows, columns;
    attn_nn_linear fc1, fc2;
    attn_nn_layer_norm rows_norm, columns_norm, ffn_norm;
    double dropout, activation_dropout;
    /* maximum number of tokens that are projected at once (see attn_nn_msa_layer_run); 0: no limit */
    int64_t max_tokens;
    bool columns_first;
} attn_nn_msa_layer;
typedef struct attn_nn_msa_layer_options {
    int64_t dim, ffn_dim, heads;
    double dropout;            /* dropout of the weights of both attentions, and of the blocks' results */
    double activation_dropout; /* dropout of the hidden channels of the feed-forward network */
    double fill;               /* score of padded keys, as in attn_nn_msa_attention */
    bool own_depth, untied;    /* see attn_nn_msa_attention */
    bool columns_first;        /* true: column attention comes before row attention */
    int64_t max_tokens;        /* maximum number of tokens that are projected at once, as in attn_nn_msa_layer_run */
} attn_nn_msa_layer_options;
void attn_nn_msa_layer_init(attn_nn_msa_layer *layer, attn_nn_builder *builder,
                            const attn_nn_msa_layer_options *options);
/* Runs the layer on x [R,C,B,D] and returns the same shape. `keep` is as in attn_nn_msa_attention_rows. row_weights
 * [H,B,C,C] (untied [H,R,B,C,C]) and column_weights [H,C,B,R,R] may be NULL. On a tape that does not record, memory
 * is limited as in attn_nn_msa_layer_apply. */
attn_tensor *attn_nn_msa_layer_forward(const attn_nn_msa_layer *layer, attn_tape *tape, attn_tensor *x,
                                       const attn_tensor *keep, attn_tensor **row_weights,
                                       attn_tensor **column_weights);

/* Type of a function that gets the attention maps of heads [first, first + n) as soon as they are computed. n is the
 * first length of `maps`. The function is called several times per layer, with heads in ascending order. `maps` are
 * freed when it returns. */
typedef void (*attn_nn_take_maps)(void *user, int64_t first, const attn_tensor *maps);

/* Tells where a layer stops: after computing its result, or as soon as the requested maps are computed. If it stops
 * at the maps, x is undefined afterwards. */
typedef enum attn_nn_msa_layer_end {
    ATTN_NN_MSA_RESULT,
    ATTN_NN_MSA_ROW_MAPS,
    ATTN_NN_MSA_COLUMN_MAPS
} attn_nn_msa_layer_end;

/* How a layer is run without gradients. Zero fields mean the defaults. */
typedef struct attn_nn_msa_layer_run {
    const attn_tensor *keep; /* U8 [B,R,C], zero for padding; NULL: no padding */
    /* Maximum number of tokens whose projections are in memory at once. 0 means the layer's own maximum, which may be
     * unlimited. Attention computes max(1, H*max_tokens/T) heads at a time, with T = R*C*B tokens. The feed-forward
     * block processes at most max_tokens tokens at a time. Results for different max_tokens differ only by rounding,
     * because the mask is always applied once, to complete sums. */
    int64_t max_tokens;
    /* true: operands of products are rounded to bf16, and products are summed in f32; x stays f32 */
    bool bf16;
    /* functions that get the maps of row attention and of column attention; NULL: these maps are not returned */
    attn_nn_take_maps rows, columns;
    void *user;
    attn_nn_msa_layer_end end;
} attn_nn_msa_layer_run;
/* Runs the layer on x [R,C,B,D] in place. In addition to x, it needs one tensor of the same size, and scratch memory
 * limited by max_tokens. On failure it sets the error and returns false; x is then undefined. ATTN_ERROR_ARGUMENT:
 * the tape records. */
bool attn_nn_msa_layer_apply(const attn_nn_msa_layer *layer, attn_tape *tape, attn_tensor *x,
                             const attn_nn_msa_layer_run *run);

#endif
