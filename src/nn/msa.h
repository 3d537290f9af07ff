/* SPDX-License-Identifier: MIT
 *
 * msa.h - layers over alignments of sequences (Rao et al. 2021, MSA Transformer, doi:10.1101/2021.02.12.430858),
 * with the parameter names of facebookresearch/esm. As in layers.h, errors stick and layers own nothing.
 *
 * Fixed letters: R rows (sequences), C columns, B alignments of a batch, D channels, H heads, F hidden channels.
 *
 * Results belong to the tape; threads as in layers.h. */
#ifndef ATTN_NN_MSA_H
#define ATTN_NN_MSA_H

#include "nn/layers.h"

/* Attention over the rows or the columns of alignments x [R,C,B,D], with parameters {q,k,v,out}_proj.{weight,bias}.
 * Rows are tied: all rows share one map, whose scores are scaled by 1/sqrt(D/H * R). Returned weights are after
 * dropout. */
typedef struct attn_nn_msa_attention {
    attn_nn_linear q, k, v, out;
    int64_t heads;
    double dropout, fill; /* fill: the score of padded keys, -10000 in the original; 0: padded keys are left out */
    /* true: R of the scale is the alignment's own number of rows that are not all padding, so a result does not depend
     * on other alignments of the batch. false, as in the original: the batch's number of rows. */
    bool own_depth;
    bool untied; /* each row has its own map and its own padding, scaled by 1/sqrt(D/H) */
} attn_nn_msa_attention;
/* ATTN_ERROR_ARGUMENT: heads does not divide dim. */
void attn_nn_msa_attention_init(attn_nn_msa_attention *layer, attn_nn_builder *builder, int64_t dim, int64_t heads,
                                double dropout, double fill);
/* keep: U8 [B,R,C], zero for padding, or NULL. *weights [H,B,C,C]; untied [H,R,B,C,C]. Padded queries are left out of
 * the sum over rows. Visible keys are those of the first row. */
attn_tensor *attn_nn_msa_attention_rows(const attn_nn_msa_attention *layer, attn_tape *tape, attn_tensor *x,
                                        const attn_tensor *keep, attn_tensor **weights);
/* *weights [H,C,B,R,R].  One row alone: out_proj(v_proj(x)). */
attn_tensor *attn_nn_msa_attention_columns(const attn_nn_msa_attention *layer, attn_tape *tape, attn_tensor *x,
                                           const attn_tensor *keep, attn_tensor **weights);

/* Three residual blocks x + dropout(f(layer_norm(x))), where f is tied row attention, column attention and
 * fc2(dropout(gelu(fc1 x))) with the exact GELU. Parameters: row_self_attention.{layer_norm,layer}.*,
 * column_self_attention.*, feed_forward_layer.{layer_norm.*,layer.{fc1,fc2}.*}. */
typedef struct attn_nn_msa_layer {
    attn_nn_msa_attention rows, columns;
    attn_nn_linear fc1, fc2;
    attn_nn_layer_norm rows_norm, columns_norm, ffn_norm;
    double dropout, activation_dropout;
    int64_t max_tokens; /* see attn_nn_msa_layer_run; 0: no bound */
    bool columns_first;
} attn_nn_msa_layer;
typedef struct attn_nn_msa_layer_options {
    int64_t dim, ffn_dim, heads;
    double dropout;            /* dropout of both attentions' weights and of the blocks' results */
    double activation_dropout; /* dropout of the hidden channels */
    double fill;               /* as in attn_nn_msa_attention */
    bool own_depth, untied;    /* as in attn_nn_msa_attention */
    bool columns_first;        /* column attention comes before row attention */
    int64_t max_tokens;        /* as in attn_nn_msa_layer_run */
} attn_nn_msa_layer_options;
void attn_nn_msa_layer_init(attn_nn_msa_layer *layer, attn_nn_builder *builder,
                            const attn_nn_msa_layer_options *options);
/* x [R,C,B,D] -> the same; keep as above. row_weights [H,B,C,C] (untied [H,R,B,C,C]) and column_weights [H,C,B,R,R] may
 * be NULL. On a tape that does not record, memory is bounded as in attn_nn_msa_layer_apply. */
attn_tensor *attn_nn_msa_layer_forward(const attn_nn_msa_layer *layer, attn_tape *tape, attn_tensor *x,
                                       const attn_tensor *keep, attn_tensor **row_weights,
                                       attn_tensor **column_weights);

/* Gets the maps of heads [first, first + n), where n is the first length of `maps`, as soon as they are computed. The
 * maps are freed when the function returns. It is called several times per layer, with heads in order. */
typedef void (*attn_nn_take_maps)(void *user, int64_t first, const attn_tensor *maps);

/* Where to stop: at the layer's result, or as soon as the requested maps are computed. In the latter case x is
 * undefined afterwards. */
typedef enum attn_nn_msa_layer_end {
    ATTN_NN_MSA_RESULT,
    ATTN_NN_MSA_ROW_MAPS,
    ATTN_NN_MSA_COLUMN_MAPS
} attn_nn_msa_layer_end;

/* How a layer is run without gradients.  Zero means the default. */
typedef struct attn_nn_msa_layer_run {
    const attn_tensor *keep; /* U8 [B,R,C], or NULL */
    /* Maximum number of tokens whose projections are in memory at once; 0: the layer's own number, or no bound.
     * Attention computes max(1, H*max_tokens/T) heads at a time, with T = R*C*B tokens. The feed-forward block
     * processes at most max_tokens tokens. Results differ only by rounding: the mask is applied once, to complete
     * sums. */
    int64_t max_tokens;
    bool bf16;                       /* products of numbers rounded to bf16, summed in f32; x stays f32 */
    attn_nn_take_maps rows, columns; /* NULL: maps are not returned */
    void *user;
    attn_nn_msa_layer_end end;
} attn_nn_msa_layer_run;
/* Runs the layer on x [R,C,B,D] in place. Memory in addition to x: one tensor of its size, and scratch bounded by
 * max_tokens. False (error set) on failure; x is then undefined. ATTN_ERROR_ARGUMENT: a tape that records. */
bool attn_nn_msa_layer_apply(const attn_nn_msa_layer *layer, attn_tape *tape, attn_tensor *x,
                             const attn_nn_msa_layer_run *run);

#endif
