/* SPDX-License-Identifier: MIT
 *
 * msa.h - layers over alignments of sequences (Rao et al. 2021, MSA Transformer, doi:10.1101/2021.02.12.430858),
 * with the parameter names of facebookresearch/esm.  The rules of layers.h hold: errors stick, layers own nothing.
 *
 * Fixed letters: R rows (sequences), C columns, B alignments of a batch, D channels, H heads, F hidden channels.
 *
 * Results belong to the tape; threads as in layers.h.
 */
#ifndef ATTN_NN_MSA_H
#define ATTN_NN_MSA_H

#include "nn/layers.h"

/* Attention over the rows or the columns of alignments x [R,C,B,D]: parameters {q,k,v,out}_proj.{weight,bias}.  Rows
 * are tied: one map for all of them, scores scaled by 1/sqrt(D/H * R).  Weights are those after dropout. */
typedef struct attn_nn_msa_attention {
    attn_nn_linear q, k, v, out;
    int64_t heads;
    double dropout, fill; /* fill: the score of padded keys, -10000 in the original; 0: they are left out */
    /* R of the scale is each alignment's own number of rows that are not all padding, so that a result does not depend
     * on what shares the batch.  The original counts the batch's rows (false). */
    bool own_depth;
    bool untied; /* each row attends by a map of its own, with its own padding, scaled by 1/sqrt(D/H) */
} attn_nn_msa_attention;
/* ATTN_ERROR_ARGUMENT: heads that do not divide dim. */
void attn_nn_msa_attention_init(attn_nn_msa_attention *layer, attn_nn_builder *builder, int64_t dim, int64_t heads,
                                double dropout, double fill);
/* keep: U8 [B,R,C], zero where there is padding, or NULL.  *weights [H,B,C,C]; untied [H,R,B,C,C].  Padded queries are left out of the
 * sum over rows; keys are those that the first row keeps. */
attn_tensor *attn_nn_msa_attention_rows(const attn_nn_msa_attention *layer, attn_tape *tape, attn_tensor *x,
                                        const attn_tensor *keep, attn_tensor **weights);
/* *weights [H,C,B,R,R].  One row alone: out_proj(v_proj(x)). */
attn_tensor *attn_nn_msa_attention_columns(const attn_nn_msa_attention *layer, attn_tape *tape, attn_tensor *x,
                                           const attn_tensor *keep, attn_tensor **weights);

/* Three residual blocks x + dropout(f(layer_norm(x))), f being tied row attention, column attention and
 * fc2(dropout(gelu(fc1 x))) with GELU's exact form: parameters row_self_attention.{layer_norm,layer}.*,
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
    double dropout;            /* of both attentions' weights and of the blocks' results */
    double activation_dropout; /* of the hidden channels */
    double fill;               /* as in attn_nn_msa_attention */
    bool own_depth, untied;    /* the same */
    bool columns_first;        /* column attention precedes row attention */
    int64_t max_tokens;        /* as in attn_nn_msa_layer_run */
} attn_nn_msa_layer_options;
void attn_nn_msa_layer_init(attn_nn_msa_layer *layer, attn_nn_builder *builder,
                            const attn_nn_msa_layer_options *options);
/* x [R,C,B,D] -> the same; keep as above.  row_weights [H,B,C,C] (untied [H,R,B,C,C]) and column_weights [H,C,B,R,R] may be NULL.  On a tape
 * that does not record, memory is bounded as by attn_nn_msa_layer_apply. */
attn_tensor *attn_nn_msa_layer_forward(const attn_nn_msa_layer *layer, attn_tape *tape, attn_tensor *x,
                                       const attn_tensor *keep, attn_tensor **row_weights,
                                       attn_tensor **column_weights);

/* Gets the maps of heads [first, first + n), n being the first length of `maps`, as soon as they are known; they are
 * freed when it returns.  Several calls a layer, heads in order. */
typedef void (*attn_nn_take_maps)(void *user, int64_t first, const attn_tensor *maps);

/* Where to stop: at the layer's result, or as soon as the requested maps are known; in the latter case x is left
 * undefined. */
typedef enum attn_nn_msa_layer_end {
    ATTN_NN_MSA_RESULT,
    ATTN_NN_MSA_ROW_MAPS,
    ATTN_NN_MSA_COLUMN_MAPS
} attn_nn_msa_layer_end;

/* How a layer is run without gradients.  Zero means the default. */
typedef struct attn_nn_msa_layer_run {
    const attn_tensor *keep; /* U8 [B,R,C], or NULL */
    /* Most tokens whose projections are held at once; 0: the layer's own number, or no bound.  Attention computes a few
     * heads at a time, at least one: with T = R*C*B tokens max(1, H*max_tokens/T) heads are taken together, and the
     * feed-forward block takes at most max_tokens tokens.  The result is the same up to rounding: the masks are applied
     * once, to whole sums. */
    int64_t max_tokens;
    bool bf16;                       /* products of rounded numbers, summed in f32; x stays f32 */
    attn_nn_take_maps rows, columns; /* NULL: the maps are not computed */
    void *user;
    attn_nn_msa_layer_end end;
} attn_nn_msa_layer_run;
/* Runs the layer on x [R,C,B,D] in place.  Memory in addition to x: one tensor of its size, and scratch bounded by
 * max_tokens.  False (noted) on failure, x then being neither old nor new.  ATTN_ERROR_ARGUMENT: a tape that
 * records. */
bool attn_nn_msa_layer_apply(const attn_nn_msa_layer *layer, attn_tape *tape, attn_tensor *x,
                             const attn_nn_msa_layer_run *run);

#endif
