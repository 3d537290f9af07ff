/* SPDX-License-Identifier: MIT
 *
 * layers.h - layers: small structs of parameters, each with an `_init` that registers them under their names and a
 * `_forward` that runs them on a tape.
 *
 * Errors stick, as in tensor.h. An `_init` that fails sets the context's error and leaves NULL parameters. A `_forward`
 * with a NULL input returns NULL. The caller checks only the last result. A builder makes nothing while the context
 * holds an error. After a failed call, call attn_context_clear_error before building.
 *
 *     attn_named_list parameters = {.context = context, .owns = true}, constants = parameters;
 *     attn_nn_builder b = {.context = context, .parameters = &parameters, .constants = &constants, .seed = 7};
 *     attn_nn_linear layer;
 *     attn_nn_push(&b, "head");
 *     attn_nn_linear_init(&layer, &b, 64, 10, true);          // head.weight [10,64], head.bias [10]
 *     attn_nn_pop(&b);
 *     attn_tensor *y = attn_nn_linear_forward(&layer, tape, x);
 *
 * A layer owns nothing: its tensors belong to the builder's lists, which must outlive the layer.  `_forward` does not
 * modify the layer, so several tapes may share it, one at a time.  Fixed letters: B batch, T tokens, Tq queries, Tk
 * keys, D channels, H heads, V vocabulary.
 *
 * One thread at a time uses a context, its builder and its tapes.  Results belong to the tape. */
#ifndef ATTN_NN_LAYERS_H
#define ATTN_NN_LAYERS_H

#include "attn/attn.h"
#include "attn/tensor.h"

/* --------------------------------------------------------------------------------------------- building */

/* Initial values of a parameter. Unless fans are given, they are computed from the shape as in PyTorch. The fan `in` is
 * the product of all lengths except the first. The fan `out` is the first length times all lengths after the second. */
typedef enum attn_nn_initializer_kind {
    ATTN_INIT_ZEROS = 0,
    ATTN_INIT_ONES,
    ATTN_INIT_UNIFORM,         /* uniform in [-scale, scale) */
    ATTN_INIT_NORMAL,          /* normal with mean 0 and standard deviation scale */
    ATTN_INIT_XAVIER_UNIFORM,  /* uniform with bound sqrt(6 / (in + out))      Glorot & Bengio 2010 */
    ATTN_INIT_KAIMING_UNIFORM, /* uniform with bound 1/sqrt(in), as in PyTorch's Linear (He et al. 2015, a = sqrt 5) */
    ATTN_INIT_POSITIVE         /* uniform in [0, scale), as for DETR's learned positions */
} attn_nn_initializer_kind;

typedef struct attn_nn_initializer {
    attn_nn_initializer_kind start;
    double scale;            /* scale of UNIFORM, NORMAL and POSITIVE; 0 means 1 */
    int64_t fan_in, fan_out; /* given fans; 0: fans computed from the shape */
} attn_nn_initializer;

/* The policy for the layers' initial values. */
typedef enum attn_nn_policy {
    /* Xavier for linear and GRU weights (for each gate separately), zeros for biases; embeddings have variance 1/D
     * if they are multiplied by sqrt(D), else 1 */
    ATTN_POLICY_XAVIER = 0,
    /* the initial values of Dive into Deep Learning: PyTorch's defaults, and Xavier for whole GRU weights */
    ATTN_POLICY_TORCH
} attn_nn_policy;

enum { ATTN_NN_MAX_DEPTH = 16, ATTN_NN_MAX_NAME = 256 };

/* Registers parameters. Set the fields up to `blank`, and `limit` if needed. All other fields must be zero. A
 * parameter's initial values depend only on the seed and its full name, not on the order of construction. */
typedef struct attn_nn_builder {
    attn_context *context;
    attn_named_list *parameters; /* gets the saved tensors: trained parameters and buffers */
    attn_named_list *constants;  /* gets the tensors that are not saved: tables computed from the config */
    attn_dtype dtype;            /* ATTN_F32 or ATTN_F64 */
    uint64_t seed;
    attn_nn_policy policy;
    bool blank;         /* all parameters start at zero */
    bool waits;         /* with `blank`: weights of linear layers get memory only when they are loaded */
    size_t limit, held; /* maximum bytes of all tensors (0: no limit); bytes of the tensors so far */
    int depth;
    int ends[ATTN_NN_MAX_DEPTH];
    char prefix[ATTN_NN_MAX_NAME];
} attn_nn_builder;

/* attn_nn_push appends a part to the name prefix, and attn_nn_pop removes it. After "blks" and "block0" were pushed,
 * names look like "blks.block0.weight". attn_nn_pushf takes a printf format. ATTN_ERROR_ARGUMENT: there are too many
 * parts, or the name is too long. */
void attn_nn_push(attn_nn_builder *builder, const char *name);
void attn_nn_pushf(attn_nn_builder *builder, const char *format, ...)
#ifdef __GNUC__
    __attribute__((format(printf, 2, 3)))
#endif
    ;
void attn_nn_pop(attn_nn_builder *builder);

/* Registers a tensor named prefix + name. A parameter is trained and needs a gradient. A buffer is saved but not
 * trained, such as running statistics. A constant is neither saved nor trained. NULL on failure: ATTN_ERROR_MEMORY,
 * or ATTN_ERROR_ARGUMENT if the name exists already. */
attn_tensor *attn_nn_parameter(attn_nn_builder *builder, const char *name, int rank, const int64_t *shape,
                               attn_nn_initializer fill);
attn_tensor *attn_nn_buffer(attn_nn_builder *builder, const char *name, int rank, const int64_t *shape,
                            attn_nn_initializer fill);
attn_tensor *attn_nn_constant(attn_nn_builder *builder, const char *name, int rank, const int64_t *shape);

/* ---------------------------------------------------------------------------------------- ordinary layers */

/* A linear layer: weight [out,in], bias [out]. */
typedef struct attn_nn_linear {
    attn_tensor *weight, *bias; /* bias may be NULL: no bias */
} attn_nn_linear;
void attn_nn_linear_init(attn_nn_linear *layer, attn_nn_builder *builder, int64_t in, int64_t out, bool bias);
/* Applies the layer to x [...,in]. Returns [...,out]. */
attn_tensor *attn_nn_linear_forward(const attn_nn_linear *layer, attn_tape *tape, attn_tensor *x);

/* An embedding: weight [V,D]. Rows are multiplied by `scale` when they are read (0: 1). */
typedef struct attn_nn_embedding {
    attn_tensor *weight;
    double scale;
} attn_nn_embedding;
void attn_nn_embedding_init(attn_nn_embedding *layer, attn_nn_builder *builder, int64_t vocabulary, int64_t dim,
                            double scale);
/* Returns the embeddings [...,D] of ids I32 [...]. */
attn_tensor *attn_nn_embedding_forward(const attn_nn_embedding *layer, attn_tape *tape, const attn_tensor *ids);

/* A layer norm: weight [D], bias [D]. eps 0 means 1e-5. */
typedef struct attn_nn_layer_norm {
    attn_tensor *weight, *bias;
    double eps;
} attn_nn_layer_norm;
void attn_nn_layer_norm_init(attn_nn_layer_norm *layer, attn_nn_builder *builder, int64_t dim, double eps);
attn_tensor *attn_nn_layer_norm_forward(const attn_nn_layer_norm *layer, attn_tape *tape, attn_tensor *x);

/* layer_norm(x + dropout(y)): a residual connection followed by a layer norm, whose parameters are ln.weight and
 * ln.bias. */
typedef struct attn_nn_add_norm {
    attn_nn_layer_norm ln;
    double dropout;
    bool pre_norm; /* set by pre-norm blocks: the result is then x + dropout(layer(norm(x))) */
} attn_nn_add_norm;
void attn_nn_add_norm_init(attn_nn_add_norm *layer, attn_nn_builder *builder, int64_t dim, double dropout);
/* Applies the layer to x and y [...,D]. Returns the same shape. */
attn_tensor *attn_nn_add_norm_forward(const attn_nn_add_norm *layer, attn_tape *tape, attn_tensor *x, attn_tensor *y);

/* The layout of sines and cosines, or the kind of positions. */
typedef enum attn_nn_position_kind {
    ATTN_NN_POSITION_INTERLEAVED =
        0,                       /* P[t,2j] = sin(t / 10000^(2j/D)), P[t,2j+1] = cos of the same angle (Vaswani et al.
                                  * 2017, arXiv:1706.03762) */
    ATTN_NN_POSITION_HALVES,     /* sines in the first ceil(D/2) channels, then cosines, as in Marian */
    ATTN_NN_POSITION_HALVES_T2T, /* the layout of HALVES with t / 10000^(j/(D/2-1)), as in tensor2tensor and fairseq */
    ATTN_NN_POSITION_LEARNED,    /* a parameter "weight" [max_len,D] */
    ATTN_NN_POSITION_NONE
} attn_nn_position_kind;
/* The table of positions, [max_len,D]. It is a constant unless it is learned. `offset` is the row of position 0. */
typedef struct attn_nn_positional {
    attn_tensor *table; /* NULL: no positions */
    double dropout;
    int64_t offset;
    bool none;
} attn_nn_positional;
/* Initialize the layer. attn_nn_positional_init uses ATTN_NN_POSITION_INTERLEAVED. ATTN_ERROR_ARGUMENT: a layout in
 * halves has an odd number of channels. */
void attn_nn_positional_init_kind(attn_nn_positional *layer, attn_nn_builder *builder, attn_nn_position_kind kind,
                                  int64_t dim, int64_t max_len, double dropout);
void attn_nn_positional_init(attn_nn_positional *layer, attn_nn_builder *builder, int64_t dim, int64_t max_len,
                             double dropout);
/* Returns dropout(x + P[first : first+T]) for x [B,T,D], where P is the table of positions. ATTN_ERROR_SHAPE: there
 * are more positions than the table has, or x has another number of channels. */
attn_tensor *attn_nn_positional_forward(const attn_nn_positional *layer, attn_tape *tape, attn_tensor *x,
                                        int64_t first);
/* Computes attn_nn_positional_forward of the embeddings of ids I32 [B,T], in one pass. */
attn_tensor *attn_nn_positional_embed(const attn_nn_positional *layer, const attn_nn_embedding *embedding,
                                      attn_tape *tape, const attn_tensor *ids, int64_t first);

/* A feed-forward network, dense2(dropout(activation(dense1(x)))), applied to each position separately. */
typedef struct attn_nn_ffn {
    attn_nn_linear dense1, dense2;
    attn_activation activation; /* ReLU after attn_nn_ffn_init, which sets dropout to 0 */
    double dropout;
} attn_nn_ffn;
void attn_nn_ffn_init(attn_nn_ffn *layer, attn_nn_builder *builder, int64_t in, int64_t hidden, int64_t out);
/* Applies the network to x [...,D]. Returns [...,out]. */
attn_tensor *attn_nn_ffn_forward(const attn_nn_ffn *layer, attn_tape *tape, attn_tensor *x);

/* Stacked layers of gated recurrent units, with dropout between layers. Parameters have PyTorch's names:
 * weight_ih_l0 [3H,I], weight_hh_l0 [3H,H], bias_ih_l0, bias_hh_l0 [3H], and so on. */
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
/* Runs the layers on x [T,B,I], and returns the last layer's states [T,B,H]. `state` has one tensor [B,H] per layer.
 * It holds the initial states (NULL: zeros) and gets the final states. These are the states after the last row, or
 * with `lens` (I32 [B]) after row max(lens,1)-1, so that padding has no effect. `state` may be NULL. */
attn_tensor *attn_nn_gru_forward(const attn_nn_gru *layer, attn_tape *tape, attn_tensor *x, attn_tensor **state,
                                 const attn_tensor *lens);

/* --------------------------------------------------------------------------------------------- attention */

/* The keys that a query can attend, and the score of masked keys. */
typedef struct attn_nn_mask {
    const attn_tensor *valid_lens; /* I32 [B] or [B,Tq]: a query attends keys j < length. NULL: all keys */
    attn_causal causal;
    /* With 0, a query without keys (length 0) gives zeros, with zero gradients. With -1e6, as in Dive into Deep
     * Learning, this query gives the mean of all values. */
    double fill;
    const attn_tensor *keys; /* U8 [B,Tk]: nonzero for visible keys. NULL: all keys are visible */
} attn_nn_mask;

/* Computes the softmax over the last axis of x [B,Tq,Tk]. Lengths are as in attn_nn_mask, whose `causal` is not
 * used. `mask` may be NULL. */
attn_tensor *attn_nn_masked_softmax(attn_tape *tape, attn_tensor *x, const attn_nn_mask *mask);

/* Returns softmax(q k^T / sqrt(D)) v [B,Tq,Dv] for queries [B,Tq,D], keys [B,Tk,D] and values [B,Tk,Dv]. *weights
 * gets the weights [B,Tq,Tk] before dropout. `mask` and `weights` may be NULL. */
attn_tensor *attn_nn_dot_product(attn_tape *tape, attn_tensor *queries, attn_tensor *keys, attn_tensor *values,
                                 const attn_nn_mask *mask, double dropout, attn_tensor **weights);

/* Additive attention (Bahdanau et al. 2014, arXiv:1409.0473). The score of a query q and a key k is the sum over the
 * hidden channels c of w_v[c] tanh(W_q q + W_k k)[c].  Parameters W_q.weight [h,Dq], W_k.weight [h,Dk], w_v.weight
 * [1,h], where h is the number of hidden channels. Memory grows with Tq + Tk: the [B,Tq,Tk,h] array of the formula is
 * never stored. */
typedef struct attn_nn_additive {
    attn_nn_linear w_q, w_k;
    attn_tensor *w_v;
    double dropout;
} attn_nn_additive;
void attn_nn_additive_init(attn_nn_additive *layer, attn_nn_builder *builder, int64_t query_size, int64_t key_size,
                           int64_t hidden, double dropout);
/* Attends queries [B,Tq,Dq] to keys [B,Tk,Dk] with values [B,Tk,Dv]. Returns [B,Tq,Dv]; *weights gets [B,Tq,Tk]. */
attn_tensor *attn_nn_additive_forward(const attn_nn_additive *layer, attn_tape *tape, attn_tensor *queries,
                                      attn_tensor *keys, attn_tensor *values, const attn_nn_mask *mask,
                                      attn_tensor **weights);
/* Attends queries to keys that were projected before: projected = w_k(keys). With `time_major`, projected and values
 * are [Tk,B,.], the layout of a recurrent layer. */
attn_tensor *attn_nn_additive_attend(const attn_nn_additive *layer, attn_tape *tape, attn_tensor *queries,
                                     attn_tensor *projected, attn_tensor *values, bool time_major,
                                     const attn_nn_mask *mask, attn_tensor **weights);

/* The score of a head's query and key. */
typedef enum attn_nn_score {
    ATTN_NN_SCORE_DOT = 0,  /* q k^T / sqrt(D/H) */
    ATTN_NN_SCORE_ADDITIVE, /* as in attn_nn_additive, with D/H hidden channels */
    ATTN_NN_SCORE_BILINEAR  /* q M k^T, M [D/H,D/H] (Luong et al. 2015, arXiv:1508.04025) */
} attn_nn_score;
/* Multi-head attention with H heads of D/H channels. The result is W_o(concatenation of the heads). Parameters W_q,
 * W_k, W_v, W_o, each with .weight [D,.] and perhaps .bias, and the parameters of the score, which all heads share:
 * attention.{W_k,W_q,w_v}.weight or attention.M.weight. Heads are read by strides, so nothing is copied. (Vaswani et
 * al. 2017, arXiv:1706.03762.) */
typedef struct attn_nn_multi_head {
    attn_nn_linear w_q, w_k, w_v, w_o;
    attn_nn_additive additive; /* used by ATTN_NN_SCORE_ADDITIVE */
    attn_nn_linear m;          /* used by ATTN_NN_SCORE_BILINEAR */
    attn_nn_score score;
    bool plain;
    int64_t hidden, heads;
    double dropout;
} attn_nn_multi_head;
typedef struct attn_nn_multi_head_options {
    int64_t hidden, heads;                    /* heads must divide hidden, else ATTN_ERROR_ARGUMENT */
    int64_t query_size, key_size, value_size; /* 0: hidden */
    attn_nn_score score;
    /* The result is the concatenated heads, without W_o. The other weights are named query, key and value. */
    bool plain;
    bool bias;
    double dropout;
} attn_nn_multi_head_options;
void attn_nn_multi_head_init(attn_nn_multi_head *layer, attn_nn_builder *builder,
                             const attn_nn_multi_head_options *options);
/* Attends queries [B,Tq,.] to keys and values [B,Tk,.]. Returns [B,Tq,D]; *weights (weights may be NULL) gets
 * [B,H,Tq,Tk]. */
attn_tensor *attn_nn_multi_head_forward(const attn_nn_multi_head *layer, attn_tape *tape, attn_tensor *queries,
                                        attn_tensor *keys, attn_tensor *values, const attn_nn_mask *mask,
                                        attn_tensor **weights);

/* A KV cache: projected keys and values of earlier tokens. k and v are [rows,capacity,D], and the first `length`
 * tokens of each row are valid. */
typedef struct attn_nn_kv_cache {
    attn_tensor *k, *v;
    int64_t length;
} attn_nn_kv_cache;
/* Allocate and free a cache; a zeroed cache may be freed too. dtype is the layers' type. For F32 layers it may be
 * BF16: keys and values are then rounded and take half the memory. ATTN_ERROR_MEMORY: there is no memory. */
attn_status attn_nn_kv_cache_init(attn_nn_kv_cache *cache, attn_context *context, attn_dtype dtype, int64_t rows,
                                  int64_t capacity, int64_t dim);
void attn_nn_kv_cache_free(attn_nn_kv_cache *cache);
/* Projects x [rows,T,.] to keys and values and appends them to the cache. No gradients are computed.
 * ATTN_ERROR_SHAPE: the cache has no room, or its channels or type differ from the layer's. */
attn_status attn_nn_multi_head_append(const attn_nn_multi_head *layer, attn_tape *tape, attn_tensor *x,
                                      attn_nn_kv_cache *cache);
/* Attends queries [rows,Tq,.] to the keys and values in the cache. */
attn_tensor *attn_nn_multi_head_cached(const attn_nn_multi_head *layer, attn_tape *tape, attn_tensor *queries,
                                       const attn_nn_kv_cache *cache, const attn_nn_mask *mask);
/* Reorders the rows: new row i is the old row rows[i]. The first shared[i] tokens of both rows are equal and are not
 * copied. If `shared` is NULL, all tokens are copied. Tokens are copied through spare->k, some at a time. `spare`
 * has the cache's type, rows and channels, and room for at least one token. spare->v is not read and may be NULL. */
void attn_nn_kv_cache_reorder(attn_nn_kv_cache *cache, attn_nn_kv_cache *spare, const int64_t *rows,
                              const int64_t *shared);
/* Changes the cache to n rows with room for `capacity` tokens. New row i is the old row rows[i], or row i if `rows` is
 * NULL. If the rows are strictly ascending and `capacity` is unchanged, rows move within the old memory. Otherwise they
 * move to new memory, and the old memory is freed. ATTN_ERROR_SHAPE: the cache holds more tokens than `capacity`, or
 * has fewer than n rows and `rows` is NULL. ATTN_ERROR_MEMORY: there is no memory. On error the cache is unchanged. */
attn_status attn_nn_kv_cache_select(attn_nn_kv_cache *cache, attn_context *context, const int64_t *rows, int64_t n,
                                    int64_t capacity);

/* Self-attention of the axial transformer (Ho et al. 2019, arXiv:1912.12180): with heads of Dh channels and the scale
 * 1/sqrt(Dh). Parameters: to_q.weight [H*Dh,D], to_kv.weight [2*H*Dh,D] (keys, then values), to_out.{weight,bias}. */
typedef struct attn_nn_self_attention {
    attn_nn_linear to_q, to_kv, to_out;
    int64_t heads, dim_head;
} attn_nn_self_attention;
/* Initializes the layer. dim_head 0 means dim / heads. ATTN_ERROR_ARGUMENT: dim_head is 0 and heads does not divide
 * dim. */
void attn_nn_self_attention_init(attn_nn_self_attention *layer, attn_nn_builder *builder, int64_t dim, int64_t heads,
                                 int64_t dim_head);
/* Attends x [B,T,D] to kv [B,S,D] (NULL: x). Returns [B,T,D]; *weights gets [B,H,T,S]. */
attn_tensor *attn_nn_self_attention_forward(const attn_nn_self_attention *layer, attn_tape *tape, attn_tensor *x,
                                            attn_tensor *kv, attn_tensor **weights);
/* Computes self-attention along `axis` of x [...] with channels D at `channel_axis`. Both axes are counted from the
 * front, and the other axes are batch axes. Returns the shape of x. *weights (weights may be NULL) gets
 * [B,H,axes...,n], where n is the axis's length. No axes are permuted or copied: projections read and write the
 * channels in place, and attention accepts any strides. ATTN_ERROR_SHAPE: the axes do not fit x.
 * ATTN_ERROR_UNSUPPORTED: the weights have more axes than a tensor allows. */
attn_tensor *attn_nn_self_attention_axis(const attn_nn_self_attention *layer, attn_tape *tape, attn_tensor *x, int axis,
                                         int channel_axis, attn_tensor **weights);

/* Attention followed by a residual connection and a norm, as in DETR (Carion et al. 2020, arXiv:2005.12872). Parameters
 * for M heads of Dh channels: w_q, w_k, w_v [M,D,Dh], proj.weight [D,M*Dh], layer_norm.*. With key_only, attention.u
 * [M,1,Dh] replaces w_q, and every query gets the same softmax over u . k (Zhu et al. 2019, arXiv:1904.05873). */
typedef struct attn_nn_detr_attention {
    attn_tensor *w_q, *w_k, *w_v, *u;
    attn_nn_linear proj;
    attn_nn_layer_norm layer_norm;
    int64_t heads, dim_head;
    double dropout;
} attn_nn_detr_attention;
void attn_nn_detr_attention_init(attn_nn_detr_attention *layer, attn_nn_builder *builder, int64_t heads, int64_t dim,
                                 int64_t dim_head, double dropout, bool key_only);
/* Attends x_q [B,Nq,D] to x_kv [B,Nk,D] (NULL: x_q). Positions p_q [1,Nq,D] or [B,Nq,D] and p_kv [1,Nk,D] or
 * [B,Nk,D] (NULL: none) are added to the inputs of queries and keys, but not of values. With key_only, x_kv and the
 * positions must be NULL. *weights (weights may be NULL) gets [B,M,Nq,Nk], with key_only [B,M,1,Nk].
 * ATTN_ERROR_SHAPE: the shapes do not fit. */
attn_tensor *attn_nn_detr_attention_forward(const attn_nn_detr_attention *layer, attn_tape *tape, attn_tensor *x_q,
                                            attn_tensor *x_kv, attn_tensor *p_q, attn_tensor *p_kv,
                                            attn_tensor **weights);

/* ------------------------------------------------------------------------------------ transformer blocks */

typedef struct attn_nn_block_options {
    int64_t hidden, ffn_hidden, heads;
    double dropout;
    bool bias;     /* whether the attention's projections have biases */
    bool pre_norm; /* norms come before the layers; otherwise after the residual connections */
    attn_activation activation;
    double eps;         /* eps of the norms; 0: 1e-5 */
    double ffn_dropout; /* dropout of the hidden numbers of the feed-forward network */
} attn_nn_block_options;

/* An encoder block. It computes addnorm2(y, ffn(y)) with y = addnorm1(x, attention(x, x, x)). With pre_norm it
 * computes y + ffn(norm2(y)) with y = x + attention(norm1(x)), under the same parameter names. */
typedef struct attn_nn_encoder_block {
    attn_nn_multi_head attention;
    attn_nn_add_norm addnorm1, addnorm2;
    attn_nn_ffn ffn;
} attn_nn_encoder_block;
void attn_nn_encoder_block_init(attn_nn_encoder_block *block, attn_nn_builder *builder,
                                const attn_nn_block_options *options);
/* Runs the block on x [B,T,D] and returns the same shape. *weights gets [B,H,T,T]. `positions` [1,T,D] or [B,T,D]
 * (NULL: none) are added to the inputs of queries and keys, but not of values, as in DETR. */
attn_tensor *attn_nn_encoder_block_forward(const attn_nn_encoder_block *block, attn_tape *tape, attn_tensor *x,
                                           attn_tensor *positions, const attn_nn_mask *mask, attn_tensor **weights);

/* A decoder block: self-attention (attention1), attention to the encoder (attention2) and a feed-forward network.
 * Each of them is followed by a residual connection and a norm. */
typedef struct attn_nn_decoder_block {
    attn_nn_multi_head attention1, attention2;
    attn_nn_add_norm addnorm1, addnorm2, addnorm3;
    attn_nn_ffn ffn;
} attn_nn_decoder_block;
void attn_nn_decoder_block_init(attn_nn_decoder_block *block, attn_nn_builder *builder,
                                const attn_nn_block_options *options);
/* Positions of a decoder block's two inputs, as in attn_nn_encoder_block_forward. NULL: no positions. */
typedef struct attn_nn_positions {
    attn_tensor *own, *encoded;
} attn_nn_positions;
/* Runs the block on x [B,T,D] and the encoder's result `encoded` [B,Ts,D]. Returns the shape of x. positions,
 * self_weights [B,H,T,T] and cross_weights [B,H,T,Ts] may be NULL. */
attn_tensor *attn_nn_decoder_block_forward(const attn_nn_decoder_block *block, attn_tape *tape, attn_tensor *x,
                                           attn_tensor *encoded, const attn_nn_positions *positions,
                                           const attn_nn_mask *self_mask, const attn_nn_mask *cross_mask,
                                           attn_tensor **self_weights, attn_tensor **cross_weights);
/* Runs the block on one token per row, x [rows,1,D]. The token's keys and values are appended to `self` [rows]. `cross`
 * [B] holds the encoder's keys and values. Each sentence has rows / B hypotheses, which share them as several queries.
 */
attn_tensor *attn_nn_decoder_block_step(const attn_nn_decoder_block *block, attn_tape *tape, attn_tensor *x,
                                        attn_nn_kv_cache *self, const attn_nn_kv_cache *cross,
                                        const attn_nn_mask *cross_mask);

#endif
