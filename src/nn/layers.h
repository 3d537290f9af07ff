/* SPDX-License-Identifier: MIT
 *
 * layers.h - layers: small structs of parameters, each with an `_init` that registers them under their names and a
 * `_forward` that runs them on a tape.
 *
 * Errors stick, as in tensor.h: an `_init` that fails sets the context's error and leaves NULL parameters, and a
 * `_forward` with a NULL input returns NULL. The caller checks only the last result. A builder makes nothing while the
 * context holds an error: after a failed call, call attn_context_clear_error before building.
 *
 *     attn_named_list parameters = {.context = context, .owns = true}, constants = parameters;
 *     attn_nn_builder b = {.context = context, .parameters = &parameters, .constants = &constants, .seed = 7};
 *     attn_nn_linear layer;
 *     attn_nn_push(&b, "head");
 *     attn_nn_linear_init(&layer, &b, 64, 10, true);          // head.weight [10,64], head.bias [10]
 *     attn_nn_pop(&b);
 *     attn_tensor *y = attn_nn_linear_forward(&layer, tape, x);
 *
 * A layer owns nothing: its tensors belong to the builder's lists, which must outlive it.  `_forward` does not
 * modify the layer, so several tapes may share it, one at a time.  Fixed letters: B batch, T tokens, Tq queries, Tk
 * keys, D channels, H heads, V vocabulary.
 *
 * One thread at a time uses a context, its builder and its tapes.  Results belong to the tape. */
#ifndef ATTN_NN_LAYERS_H
#define ATTN_NN_LAYERS_H

#include "attn/attn.h"
#include "attn/tensor.h"

/* --------------------------------------------------------------------------------------------- building */

/* Initial values of a parameter. Unless given, fans are computed from the shape as in PyTorch (in: the product of all
 * lengths except the first; out: the first length times all lengths after the second). */
typedef enum attn_nn_initializer_kind {
    ATTN_INIT_ZEROS = 0,
    ATTN_INIT_ONES,
    ATTN_INIT_UNIFORM,         /* [-scale, scale) */
    ATTN_INIT_NORMAL,          /* mean 0, standard deviation scale */
    ATTN_INIT_XAVIER_UNIFORM,  /* bound sqrt(6 / (in + out))      Glorot & Bengio 2010 */
    ATTN_INIT_KAIMING_UNIFORM, /* bound 1/sqrt(in), as for PyTorch's Linear (He et al. 2015 with a = sqrt 5) */
    ATTN_INIT_POSITIVE         /* [0, scale), as for DETR's learned positions */
} attn_nn_initializer_kind;

typedef struct attn_nn_initializer {
    attn_nn_initializer_kind start;
    double scale;            /* scale of UNIFORM, NORMAL and POSITIVE; 0 means 1 */
    int64_t fan_in, fan_out; /* fans; 0: from the shape */
} attn_nn_initializer;

/* Which initial values the layers use. */
typedef enum attn_nn_policy {
    /* Xavier for linear and GRU weights (for each gate separately), biases 0, embeddings of variance 1/D if they are
     * multiplied by sqrt(D), else 1 */
    ATTN_POLICY_XAVIER = 0,
    /* PyTorch's defaults, and Xavier for whole GRU weights: the initial values of Dive into Deep Learning */
    ATTN_POLICY_TORCH
} attn_nn_policy;

enum { ATTN_NN_MAX_DEPTH = 16, ATTN_NN_MAX_NAME = 256 };

/* Registers parameters. Set the fields down to `blank` and, if needed, `limit`; zero all others. A parameter's initial
 * values depend only on the seed and its full name, not on the order of construction. */
typedef struct attn_nn_builder {
    attn_context *context;
    attn_named_list *parameters; /* gets the saved tensors: trained parameters and buffers */
    attn_named_list *constants;  /* gets the tensors that are not saved: tables computed from the config */
    attn_dtype dtype;            /* ATTN_F32 or ATTN_F64 */
    uint64_t seed;
    attn_nn_policy policy;
    bool blank;         /* all parameters start at zero */
    bool waits;         /* with `blank`: weights of linear layers get no memory until they are loaded */
    size_t limit, held; /* maximum bytes of all tensors (0: no limit), and bytes so far */
    int depth;
    int ends[ATTN_NN_MAX_DEPTH];
    char prefix[ATTN_NN_MAX_NAME];
} attn_nn_builder;

/* Push appends a part to the name prefix and pop removes it: "blks", then "block0", gives names "blks.block0.weight".
 * attn_nn_pushf takes a printf format. ATTN_ERROR_ARGUMENT: too many parts, or too long a name. */
void attn_nn_push(attn_nn_builder *builder, const char *name);
void attn_nn_pushf(attn_nn_builder *builder, const char *format, ...)
#ifdef __GNUC__
    __attribute__((format(printf, 2, 3)))
#endif
    ;
void attn_nn_pop(attn_nn_builder *builder);

/* A trained parameter (needs a gradient), a buffer (saved, not trained: running statistics), or a constant (neither),
 * named prefix + name. NULL on failure: ATTN_ERROR_MEMORY, ATTN_ERROR_ARGUMENT (the name exists already). */
attn_tensor *attn_nn_parameter(attn_nn_builder *builder, const char *name, int rank, const int64_t *shape,
                               attn_nn_initializer fill);
attn_tensor *attn_nn_buffer(attn_nn_builder *builder, const char *name, int rank, const int64_t *shape,
                            attn_nn_initializer fill);
attn_tensor *attn_nn_constant(attn_nn_builder *builder, const char *name, int rank, const int64_t *shape);

/* ---------------------------------------------------------------------------------------- ordinary layers */

/* weight [out,in], bias [out]. */
typedef struct attn_nn_linear {
    attn_tensor *weight, *bias; /* bias NULL: none */
} attn_nn_linear;
void attn_nn_linear_init(attn_nn_linear *layer, attn_nn_builder *builder, int64_t in, int64_t out, bool bias);
/* x [...,in] -> [...,out] */
attn_tensor *attn_nn_linear_forward(const attn_nn_linear *layer, attn_tape *tape, attn_tensor *x);

/* weight [V,D]; rows are multiplied by `scale` when read (0: 1). */
typedef struct attn_nn_embedding {
    attn_tensor *weight;
    double scale;
} attn_nn_embedding;
void attn_nn_embedding_init(attn_nn_embedding *layer, attn_nn_builder *builder, int64_t vocabulary, int64_t dim,
                            double scale);
/* ids I32 [...] -> [...,D] */
attn_tensor *attn_nn_embedding_forward(const attn_nn_embedding *layer, attn_tape *tape, const attn_tensor *ids);

/* weight, bias [D]; eps 0: 1e-5. */
typedef struct attn_nn_layer_norm {
    attn_tensor *weight, *bias;
    double eps;
} attn_nn_layer_norm;
void attn_nn_layer_norm_init(attn_nn_layer_norm *layer, attn_nn_builder *builder, int64_t dim, double eps);
attn_tensor *attn_nn_layer_norm_forward(const attn_nn_layer_norm *layer, attn_tape *tape, attn_tensor *x);

/* layer_norm(x + dropout(y)): a residual connection followed by the norm; parameters ln.weight, ln.bias. */
typedef struct attn_nn_add_norm {
    attn_nn_layer_norm ln;
    double dropout;
    bool pre_norm; /* set by pre-norm blocks: the result is then x + dropout(layer(norm(x))) */
} attn_nn_add_norm;
void attn_nn_add_norm_init(attn_nn_add_norm *layer, attn_nn_builder *builder, int64_t dim, double dropout);
/* x and y [...,D] -> the same. */
attn_tensor *attn_nn_add_norm_forward(const attn_nn_add_norm *layer, attn_tape *tape, attn_tensor *x, attn_tensor *y);

/* The layout of positions. */
typedef enum attn_nn_position_kind {
    ATTN_NN_POSITION_INTERLEAVED =
        0,                       /* P[t,2j] = sin(t / 10000^(2j/D)), P[t,2j+1] = cos of the same (Vaswani et al. 2017,
                              * arXiv:1706.03762) */
    ATTN_NN_POSITION_HALVES,     /* the same sines in the first ceil(D/2) channels, followed by the cosines: Marian */
    ATTN_NN_POSITION_HALVES_T2T, /* the same layout with t / 10000^(j/(D/2-1)): tensor2tensor, fairseq */
    ATTN_NN_POSITION_LEARNED,    /* a parameter "weight" [max_len,D] */
    ATTN_NN_POSITION_NONE
} attn_nn_position_kind;
/* The table [max_len,D], a constant unless it is learned; `offset` is the row of position 0. */
typedef struct attn_nn_positional {
    attn_tensor *table; /* NULL: no positions */
    double dropout;
    int64_t offset;
    bool none;
} attn_nn_positional;
/* attn_nn_positional_init uses ATTN_NN_POSITION_INTERLEAVED. ATTN_ERROR_ARGUMENT: two halves of an odd number of
 * channels. */
void attn_nn_positional_init_kind(attn_nn_positional *layer, attn_nn_builder *builder, attn_nn_position_kind kind,
                                  int64_t dim, int64_t max_len, double dropout);
void attn_nn_positional_init(attn_nn_positional *layer, attn_nn_builder *builder, int64_t dim, int64_t max_len,
                             double dropout);
/* dropout(x + P[first : first+T]); x [B,T,D]. ATTN_ERROR_SHAPE: more positions than the table has, or other
 * channels. */
attn_tensor *attn_nn_positional_forward(const attn_nn_positional *layer, attn_tape *tape, attn_tensor *x,
                                        int64_t first);
/* The same for embeddings of ids I32 [B,T], in one pass. */
attn_tensor *attn_nn_positional_embed(const attn_nn_positional *layer, const attn_nn_embedding *embedding,
                                      attn_tape *tape, const attn_tensor *ids, int64_t first);

/* dense2(dropout(activation(dense1(x)))), for each position separately. */
typedef struct attn_nn_ffn {
    attn_nn_linear dense1, dense2;
    attn_activation activation; /* attn_nn_ffn_init sets ReLU and dropout 0 */
    double dropout;
} attn_nn_ffn;
void attn_nn_ffn_init(attn_nn_ffn *layer, attn_nn_builder *builder, int64_t in, int64_t hidden, int64_t out);
/* x [...,D] -> [...,out]. */
attn_tensor *attn_nn_ffn_forward(const attn_nn_ffn *layer, attn_tape *tape, attn_tensor *x);

/* Layers of gated recurrent units, PyTorch's names weight_ih_l0 [3H,I], weight_hh_l0 [3H,H], bias_ih_l0,
 * bias_hh_l0 [3H], and so on; dropout between layers. */
enum { ATTN_NN_MAX_GRU_LAYERS = 16 };
typedef struct attn_nn_gru {
    int layers;
    int64_t hidden;
    double dropout;
    attn_tensor *weight_ih[ATTN_NN_MAX_GRU_LAYERS], *weight_hh[ATTN_NN_MAX_GRU_LAYERS];
    attn_tensor *bias_ih[ATTN_NN_MAX_GRU_LAYERS], *bias_hh[ATTN_NN_MAX_GRU_LAYERS];
} attn_nn_gru;
void attn_nn_gru_init(attn_nn_gru *layer, attn_nn_builder *builder, int64_t in, int64_t hidden, int layers,
                      double dropout);
/* x [T,B,I]. Returns the last layer's states [T,B,H]. `state` (one tensor [B,H] per layer, each may be NULL: zeros)
 * holds the initial states and gets the final ones: after the last row, or, with `lens` (I32 [B]), after row
 * max(lens,1)-1, so that padding has no effect. `state` may be NULL. */
attn_tensor *attn_nn_gru_forward(const attn_nn_gru *layer, attn_tape *tape, attn_tensor *x, attn_tensor **state,
                                 const attn_tensor *lens);

/* --------------------------------------------------------------------------------------------- attention */

/* Which keys are visible, and the score of masked keys. */
typedef struct attn_nn_mask {
    const attn_tensor *valid_lens; /* I32 [B] or [B,Tq]: keys j < length.  NULL: all */
    attn_causal causal;
    /* 0: a query without keys (length 0) gives zeros, with zero gradients. -1e6, as in Dive into Deep Learning: this
     * query gives the mean of all values. */
    double fill;
    const attn_tensor *keys; /* U8 [B,Tk]: nonzero for visible keys. NULL: all */
} attn_nn_mask;

/* softmax over the last axis of x [B,Tq,Tk]; lengths as in attn_nn_mask (its `causal` is not used); mask may be
 * NULL. */
attn_tensor *attn_nn_masked_softmax(attn_tape *tape, attn_tensor *x, const attn_nn_mask *mask);

/* softmax(q k^T / sqrt(D)) v: queries [B,Tq,D], keys [B,Tk,D], values [B,Tk,Dv] -> [B,Tq,Dv].  mask and weights
 * may be NULL; *weights gets [B,Tq,Tk], before dropout. */
attn_tensor *attn_nn_dot_product(attn_tape *tape, attn_tensor *queries, attn_tensor *keys, attn_tensor *values,
                                 const attn_nn_mask *mask, double dropout, attn_tensor **weights);

/* Scores sum_c w_v[c] tanh(W_q q + W_k k)[c] (Bahdanau et al. 2014, arXiv:1409.0473).  Parameters W_q.weight
 * [h,Dq], W_k.weight [h,Dk], w_v.weight [1,h]. Memory grows with Tq + Tk: the [B,Tq,Tk,h] array of the formula is never
 * stored. */
typedef struct attn_nn_additive {
    attn_nn_linear w_q, w_k;
    attn_tensor *w_v;
    double dropout;
} attn_nn_additive;
void attn_nn_additive_init(attn_nn_additive *layer, attn_nn_builder *builder, int64_t query_size, int64_t key_size,
                           int64_t hidden, double dropout);
/* queries [B,Tq,Dq], keys [B,Tk,Dk], values [B,Tk,Dv] -> [B,Tq,Dv]; *weights gets [B,Tq,Tk]. */
attn_tensor *attn_nn_additive_forward(const attn_nn_additive *layer, attn_tape *tape, attn_tensor *queries,
                                      attn_tensor *keys, attn_tensor *values, const attn_nn_mask *mask,
                                      attn_tensor **weights);
/* Attention with keys that were projected before: projected = w_k(keys). With `time_major`, projected and values are
 * [Tk,B,.], the layout of a recurrent layer. */
attn_tensor *attn_nn_additive_attend(const attn_nn_additive *layer, attn_tape *tape, attn_tensor *queries,
                                     attn_tensor *projected, attn_tensor *values, bool time_major,
                                     const attn_nn_mask *mask, attn_tensor **weights);

/* The score of a head's query and key. */
typedef enum attn_nn_score {
    ATTN_NN_SCORE_DOT = 0,  /* q k^T / sqrt(D/H) */
    ATTN_NN_SCORE_ADDITIVE, /* as attn_nn_additive, with D/H hidden channels */
    ATTN_NN_SCORE_BILINEAR  /* q M k^T, M [D/H,D/H] (Luong et al. 2015, arXiv:1508.04025) */
} attn_nn_score;
/* H heads of D/H channels: W_o(concat of heads). Parameters W_q, W_k, W_v, W_o, each .weight [D,.] (and .bias), and the
 * parameters of the score, which all heads share: attention.{W_k,W_q,w_v}.weight or attention.M.weight. Heads are
 * strides, so nothing is copied. (Vaswani et al. 2017, arXiv:1706.03762.) */
typedef struct attn_nn_multi_head {
    attn_nn_linear w_q, w_k, w_v, w_o;
    attn_nn_additive additive; /* with ATTN_NN_SCORE_ADDITIVE */
    attn_nn_linear m;          /* with ATTN_NN_SCORE_BILINEAR */
    attn_nn_score score;
    bool plain;
    int64_t hidden, heads;
    double dropout;
} attn_nn_multi_head;
typedef struct attn_nn_multi_head_options {
    int64_t hidden, heads;                    /* heads divides hidden, else ATTN_ERROR_ARGUMENT */
    int64_t query_size, key_size, value_size; /* 0: hidden */
    attn_nn_score score;
    /* the concatenated heads are the result: no W_o, and the other weights are named query, key and value */
    bool plain;
    bool bias;
    double dropout;
} attn_nn_multi_head_options;
void attn_nn_multi_head_init(attn_nn_multi_head *layer, attn_nn_builder *builder,
                             const attn_nn_multi_head_options *options);
/* queries [B,Tq,.], keys and values [B,Tk,.] -> [B,Tq,D]; *weights (weights may be NULL) gets [B,H,Tq,Tk]. */
attn_tensor *attn_nn_multi_head_forward(const attn_nn_multi_head *layer, attn_tape *tape, attn_tensor *queries,
                                        attn_tensor *keys, attn_tensor *values, const attn_nn_mask *mask,
                                        attn_tensor **weights);

/* Projected keys and values of earlier tokens: k and v [rows,capacity,D], of which the first `length` tokens of each
 * row are valid. */
typedef struct attn_nn_kv_cache {
    attn_tensor *k, *v;
    int64_t length;
} attn_nn_kv_cache;
/* Allocates (ATTN_ERROR_MEMORY) and frees; a zeroed cache may be freed. dtype: the layers' type, or BF16 for layers of
 * F32: keys and values are then rounded and take half the memory. */
attn_status attn_nn_kv_cache_init(attn_nn_kv_cache *cache, attn_context *context, attn_dtype dtype, int64_t rows,
                                  int64_t capacity, int64_t dim);
void attn_nn_kv_cache_free(attn_nn_kv_cache *cache);
/* Projects x [rows,T,.] and appends the result. ATTN_ERROR_SHAPE: no room, or a cache with other channels or another
 * type than the layer's. No gradients. */
attn_status attn_nn_multi_head_append(const attn_nn_multi_head *layer, attn_tape *tape, attn_tensor *x,
                                      attn_nn_kv_cache *cache);
/* Attention of queries [rows,Tq,.] to the keys and values in the cache. */
attn_tensor *attn_nn_multi_head_cached(const attn_nn_multi_head *layer, attn_tape *tape, attn_tensor *queries,
                                       const attn_nn_kv_cache *cache, const attn_nn_mask *mask);
/* New row i is the old row rows[i]. The first shared[i] tokens of both rows are equal and are not copied (shared NULL:
 * copy all). The others are copied through spare->k, some tokens at a time. `spare` has the cache's type, rows and
 * channels, and room for at least one token. spare->v is not read and may be NULL. */
void attn_nn_kv_cache_reorder(attn_nn_kv_cache *cache, attn_nn_kv_cache *spare, const int64_t *rows,
                              const int64_t *shared);
/* Changes the cache to n rows with room for `capacity` tokens: row i is the old row rows[i] (rows NULL: i). Strictly
 * ascending rows move within the old memory if the room is the same; else the old memory is freed. ATTN_ERROR_SHAPE:
 * the cache holds more tokens or has fewer rows; ATTN_ERROR_MEMORY. On error the cache is unchanged. */
attn_status attn_nn_kv_cache_select(attn_nn_kv_cache *cache, attn_context *context, const int64_t *rows, int64_t n,
                                    int64_t capacity);

/* Self-attention of the axial transformer (Ho et al. 2019, arXiv:1912.12180): parameters to_q.weight [H*Dh,D],
 * to_kv.weight [2*H*Dh,D] (keys, then values), to_out.{weight,bias}; scale 1/sqrt(Dh). */
typedef struct attn_nn_self_attention {
    attn_nn_linear to_q, to_kv, to_out;
    int64_t heads, dim_head;
} attn_nn_self_attention;
/* dim_head 0: dim / heads. ATTN_ERROR_ARGUMENT: dim_head 0, and heads does not divide dim. */
void attn_nn_self_attention_init(attn_nn_self_attention *layer, attn_nn_builder *builder, int64_t dim, int64_t heads,
                                 int64_t dim_head);
/* x [B,T,D], kv [B,S,D] (NULL: x) -> [B,T,D]; *weights [B,H,T,S]. */
attn_tensor *attn_nn_self_attention_forward(const attn_nn_self_attention *layer, attn_tape *tape, attn_tensor *x,
                                            attn_tensor *kv, attn_tensor **weights);
/* Self-attention along `axis` of x with channels D at `channel_axis`, both counted from the front; the other axes are
 * batch. No axes are permuted or copied: projections read and write the channels in place, and attention accepts any
 * strides. ATTN_ERROR_SHAPE. x [...] -> the same shape; *weights (weights may be NULL) gets [B,H,axes...,n], n the
 * axis's length. ATTN_ERROR_UNSUPPORTED: the weights have more axes than a tensor allows. */
attn_tensor *attn_nn_self_attention_axis(const attn_nn_self_attention *layer, attn_tape *tape, attn_tensor *x, int axis,
                                         int channel_axis, attn_tensor **weights);

/* Attention followed by a residual connection and a norm, as in DETR (Carion et al. 2020, arXiv:2005.12872): parameters
 * w_q, w_k, w_v [M,D,Dh], proj.weight [D,M*Dh], layer_norm.*; or, with key_only, attention.u [M,1,Dh] in place of w_q:
 * every query gets the same softmax over u . k (Zhu et al. 2019, arXiv:1904.05873). */
typedef struct attn_nn_detr_attention {
    attn_tensor *w_q, *w_k, *w_v, *u;
    attn_nn_linear proj;
    attn_nn_layer_norm layer_norm;
    int64_t heads, dim_head;
    double dropout;
} attn_nn_detr_attention;
void attn_nn_detr_attention_init(attn_nn_detr_attention *layer, attn_nn_builder *builder, int64_t heads, int64_t dim,
                                 int64_t dim_head, double dropout, bool key_only);
/* x_q [B,Nq,D], x_kv [B,Nk,D] (NULL: x_q); positions p_q [1,Nq,D] or [B,Nq,D] and p_kv [1,Nk,D] or [B,Nk,D] (NULL:
 * none) are added to the inputs of queries and keys, not of values. With key_only, x_kv and the positions must be NULL.
 * *weights (weights may be NULL) gets [B,M,Nq,Nk], with key_only [B,M,1,Nk]. ATTN_ERROR_SHAPE. */
attn_tensor *attn_nn_detr_attention_forward(const attn_nn_detr_attention *layer, attn_tape *tape, attn_tensor *x_q,
                                            attn_tensor *x_kv, attn_tensor *p_q, attn_tensor *p_kv,
                                            attn_tensor **weights);

/* ------------------------------------------------------------------------------------ transformer blocks */

typedef struct attn_nn_block_options {
    int64_t hidden, ffn_hidden, heads;
    double dropout;
    bool bias;     /* biases of the attention's projections */
    bool pre_norm; /* norms come before the layers, not after the residual connections */
    attn_activation activation;
    double eps;         /* eps of the norms; 0: 1e-5 */
    double ffn_dropout; /* dropout of the feed-forward network's hidden numbers */
} attn_nn_block_options;

/* addnorm2(y, ffn(y)) with y = addnorm1(x, attention(x, x, x)). With pre_norm: y + ffn(norm2(y)) with y = x +
 * attention(norm1(x)), under the same parameter names. */
typedef struct attn_nn_encoder_block {
    attn_nn_multi_head attention;
    attn_nn_add_norm addnorm1, addnorm2;
    attn_nn_ffn ffn;
} attn_nn_encoder_block;
void attn_nn_encoder_block_init(attn_nn_encoder_block *block, attn_nn_builder *builder,
                                const attn_nn_block_options *options);
/* x [B,T,D] -> the same; *weights [B,H,T,T]. `positions` [1,T,D] or [B,T,D] (NULL: none) are added to the inputs of
 * queries and keys, not of values, as in DETR. */
attn_tensor *attn_nn_encoder_block_forward(const attn_nn_encoder_block *block, attn_tape *tape, attn_tensor *x,
                                           attn_tensor *positions, const attn_nn_mask *mask, attn_tensor **weights);

/* Self-attention (attention1), attention to the encoder (attention2) and FFN, each followed by add & norm. */
typedef struct attn_nn_decoder_block {
    attn_nn_multi_head attention1, attention2;
    attn_nn_add_norm addnorm1, addnorm2, addnorm3;
    attn_nn_ffn ffn;
} attn_nn_decoder_block;
void attn_nn_decoder_block_init(attn_nn_decoder_block *block, attn_nn_builder *builder,
                                const attn_nn_block_options *options);
/* Positions of a block's two inputs, as in attn_nn_encoder_block_forward; NULL: none. */
typedef struct attn_nn_positions {
    attn_tensor *own, *encoded;
} attn_nn_positions;
/* x [B,T,D], encoded [B,Ts,D]; positions, self_weights [B,H,T,T] and cross_weights [B,H,T,Ts] may be NULL. */
attn_tensor *attn_nn_decoder_block_forward(const attn_nn_decoder_block *block, attn_tape *tape, attn_tensor *x,
                                           attn_tensor *encoded, const attn_nn_positions *positions,
                                           const attn_nn_mask *self_mask, const attn_nn_mask *cross_mask,
                                           attn_tensor **self_weights, attn_tensor **cross_weights);
/* One token per row: x [rows,1,D]. `self` [rows] gets the token's keys and values. `cross` [B] holds the encoder's; the
 * rows / B hypotheses of a sentence share them as several queries. */
attn_tensor *attn_nn_decoder_block_step(const attn_nn_decoder_block *block, attn_tape *tape, attn_tensor *x,
                                        attn_nn_kv_cache *self, const attn_nn_kv_cache *cross,
                                        const attn_nn_mask *cross_mask);

#endif
