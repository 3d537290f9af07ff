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

/* Initial values of a parameter. If the fans are not given, they are computed from the shape as in PyTorch. Fan `in` is
 * the product of all lengths except the first. Fan `out` is the product of all lengths except the second. */
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
    double scale; /* scale of UNIFORM, NORMAL and POSITIVE; 0 means 1 */
    /* fan-in and fan-out; 0: computed from the shape. They are doubles, because they are products of settings whose
     * sizes are not checked yet. */
    double fan_in, fan_out;
} attn_nn_initializer;

/* The rule for initial values that each layer follows. */
typedef enum attn_nn_policy {
    /* Weights of linear layers and of each gate of a GRU have Xavier's initial values, and biases are zero.
     * Embeddings have variance 1/D if they are multiplied by sqrt(D) when they are read, otherwise variance 1. */
    ATTN_POLICY_XAVIER = 0,
    /* The initial values are those of Dive into Deep Learning: PyTorch's defaults, but Xavier's for GRU weights,
     * whose fans are those of all gates together. */
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
    bool blank; /* true: all parameters are zero; set if parameters are loaded afterwards */
    /* true: if `blank` is true too, memory for the weights of linear layers is allocated only when they are loaded */
    bool waits;
    /* limit: maximum number of bytes of all tensors (0: no limit); held: bytes of all tensors so far */
    size_t limit, held;
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

/* Registers a tensor whose name is the builder's prefix followed by `name`. A parameter is trained and needs a
 * gradient. A buffer, such as running statistics, is saved but not trained. A constant is neither saved nor trained.
 * NULL on failure: ATTN_ERROR_MEMORY, or ATTN_ERROR_ARGUMENT if the name exists already. */
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
    attn_tensor *weight, *bias; /* attn__nn_norm_named (named.h) can make a constant bias of zeros */
    double eps;
    bool rms; /* true: divides by the root mean square and subtracts no mean */
} attn_nn_layer_norm;
void attn_nn_layer_norm_init(attn_nn_layer_norm *layer, attn_nn_builder *builder, int64_t dim, double eps);
attn_tensor *attn_nn_layer_norm_forward(const attn_nn_layer_norm *layer, attn_tape *tape, attn_tensor *x);

/* Computes layer_norm(x + dropout(y)), a residual connection followed by a layer norm. The parameters are ln.weight
 * and ln.bias. */
typedef struct attn_nn_add_norm {
    attn_nn_layer_norm ln;
    double dropout;
    bool pre_norm; /* true in pre-norm blocks; the block's result is then x + dropout(layer(norm(x))) */
} attn_nn_add_norm;
void attn_nn_add_norm_init(attn_nn_add_norm *layer, attn_nn_builder *builder, int64_t dim, double dropout);
/* Applies the layer to x and y [...,D]. Returns the same shape. */
attn_tensor *attn_nn_add_norm_forward(const attn_nn_add_norm *layer, attn_tape *tape, attn_tensor *x, attn_tensor *y);

/* The kind of the positions: their layout of sines and cosines, or learned positions. */
typedef enum attn_nn_position_kind {
    ATTN_NN_POSITION_INTERLEAVED =
        0,                   /* P[t,2j] = sin(t / 10000^(2j/D)), P[t,2j+1] = cos of the same angle (Vaswani et al.
                                  * 2017, arXiv:1706.03762) */
    ATTN_NN_POSITION_HALVES, /* sines in the first ceil(D/2) channels, then cosines, as in Marian */
    /* same layout as HALVES, but the angle is t / 10000^(j/(D/2-1)), as in tensor2tensor and fairseq */
    ATTN_NN_POSITION_HALVES_T2T,
    ATTN_NN_POSITION_LEARNED, /* a parameter "weight" [max_len,D] */
    ATTN_NN_POSITION_NONE
} attn_nn_position_kind;
/* The table of positions, [max_len,D]. It is a constant unless it is learned. `offset` is the row of position 0. */
typedef struct attn_nn_positional {
    attn_tensor *table; /* table of positions; NULL: there are no positions */
    double dropout;
    int64_t offset;
    bool none;
} attn_nn_positional;
/* These functions initialize the layer. attn_nn_positional_init uses ATTN_NN_POSITION_INTERLEAVED. ATTN_ERROR_ARGUMENT:
 * the number of channels is odd and the layout needs two equal halves. */
void attn_nn_positional_init_kind(attn_nn_positional *layer, attn_nn_builder *builder, attn_nn_position_kind kind,
                                  int64_t dim, int64_t max_len, double dropout);
void attn_nn_positional_init(attn_nn_positional *layer, attn_nn_builder *builder, int64_t dim, int64_t max_len,
                             double dropout);
/* Returns dropout(x + P[first : first+T]) for x [B,T,D], where P is the table of positions. ATTN_ERROR_SHAPE: there
 * are more positions than the table has, or x has another number of channels. */
attn_tensor *attn_nn_positional_forward(const attn_nn_positional *layer, attn_tape *tape, attn_tensor *x,
                                        int64_t first);
/* Computes attn_nn_positional_forward of the embeddings of ids I32 [B,T]. The embeddings are not stored, because
 * looking them up and adding the positions is one pass. */
attn_tensor *attn_nn_positional_embed(const attn_nn_positional *layer, const attn_nn_embedding *embedding,
                                      attn_tape *tape, const attn_tensor *ids, int64_t first);

/* A feed-forward network, dense2(dropout(activation(dense1(x)))), applied to each position separately. If it has a
 * gate, the activation is multiplied by gate(x) (Shazeer 2020, arXiv:2002.05202). */
typedef struct attn_nn_ffn {
    attn_nn_linear dense1, dense2;
    attn_nn_linear gate;        /* a gate of the hidden channels; its weight is NULL if there is none */
    attn_activation activation; /* attn_nn_ffn_init sets the activation to ReLU and dropout to 0 */
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
/* Runs the layers on x [T,B,I], and returns the last layer's states [T,B,H]. `state` may be NULL. Otherwise it is an
 * array of one tensor [B,H] per layer, which holds the initial states (a NULL tensor means zeros) and gets the final
 * states. Without `lens`, the final states are those of the last row. With `lens` (I32 [B]), they are those of row
 * max(lens,1)-1 of each sequence, so that padding has no effect. */
attn_tensor *attn_nn_gru_forward(const attn_nn_gru *layer, attn_tape *tape, attn_tensor *x, attn_tensor **state,
                                 const attn_tensor *lens);

/* --------------------------------------------------------------------------------------------- attention */

/* Sequences of different lengths that are stored one after another without padding, as a batch of one: x [1,N,D]. */
typedef struct attn_nn_packed {
    const attn_tensor *offsets;   /* I32 [S + 1]: sequence s has the tokens from offsets[s] to offsets[s + 1] */
    const attn_tensor *positions; /* I32 [1,N]: the position of each token in its sequence */
    int64_t longest;
} attn_nn_packed;

/* The keys that a query can attend, and the score of masked keys. */
typedef struct attn_nn_mask {
    const attn_tensor *valid_lens; /* I32 [B] or [B,Tq]: a query attends keys j < length. NULL: all keys */
    attn_causal causal;
    /* Determines the result of a query whose keys are all masked (length 0). With 0, the result and its gradients
     * are zero. With -1e6, as in Dive into Deep Learning, the result is the mean of all values. */
    double fill;
    const attn_tensor *keys;      /* U8 [B,Tk]: nonzero for visible keys. NULL: all keys are visible */
    int64_t window;               /* a query attends keys at most this far from it on both sides; 0: at any distance */
    const attn_nn_packed *packed; /* packed sequences, of which each attends to itself; NULL: the batch is padded */
} attn_nn_mask;

/* Computes the softmax over the last axis of x [B,Tq,Tk]. The lengths of `mask` apply; its `causal` is ignored. `mask`
 * may be NULL. */
attn_tensor *attn_nn_masked_softmax(attn_tape *tape, attn_tensor *x, const attn_nn_mask *mask);

/* Returns softmax(q k^T / sqrt(D)) v [B,Tq,Dv] for queries [B,Tq,D], keys [B,Tk,D] and values [B,Tk,Dv]. *weights
 * gets the weights [B,Tq,Tk] before dropout. `mask` and `weights` may be NULL. */
attn_tensor *attn_nn_dot_product(attn_tape *tape, attn_tensor *queries, attn_tensor *keys, attn_tensor *values,
                                 const attn_nn_mask *mask, double dropout, attn_tensor **weights);

/* Additive attention (Bahdanau et al. 2014, arXiv:1409.0473). The score of a query q and a key k is the sum over the
 * hidden channels c of w_v[c] tanh(W_q q + W_k k)[c].  The parameters are W_q.weight [h,Dq], W_k.weight [h,Dk] and
 * w_v.weight [1,h], where h is the number of hidden channels. Memory grows with Tq + Tk: the [B,Tq,Tk,h] array of the
 * formula is never stored. */
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
/* Computes the same for keys that are already projected: `projected` is w_k(keys). If `time_major` is true,
 * `projected` and `values` have the shape [Tk,B,.], which is the layout of a recurrent layer. */
attn_tensor *attn_nn_additive_attend(const attn_nn_additive *layer, attn_tape *tape, attn_tensor *queries,
                                     attn_tensor *projected, attn_tensor *values, bool time_major,
                                     const attn_nn_mask *mask, attn_tensor **weights);

/* The formula for the score of a query and a key of one head. */
typedef enum attn_nn_score {
    ATTN_NN_SCORE_DOT = 0,  /* q k^T / sqrt(D/H), the scaled dot product */
    ATTN_NN_SCORE_ADDITIVE, /* the score of attn_nn_additive with D/H hidden channels */
    ATTN_NN_SCORE_BILINEAR  /* q M k^T with a learned matrix M [D/H,D/H] (Luong et al. 2015, arXiv:1508.04025) */
} attn_nn_score;
/* Multi-head attention with H heads of D/H channels. The result is W_o(concatenation of the heads). The parameters are
 * W_q, W_k, W_v and W_o, each with .weight [D,.] and, if requested, .bias. All heads share the parameters of the score:
 * attention.{W_k,W_q,w_v}.weight for ADDITIVE, attention.M.weight for BILINEAR. Heads are read by strides, so nothing
 * is copied. (Vaswani et al. 2017, arXiv:1706.03762.) */
typedef struct attn_nn_multi_head {
    attn_nn_linear w_q, w_k, w_v, w_o;
    attn_nn_additive additive; /* used by ATTN_NN_SCORE_ADDITIVE */
    attn_nn_linear m;          /* used by ATTN_NN_SCORE_BILINEAR */
    attn_tensor *rotary;       /* angles that rotate queries and keys (tensor/parts.h); NULL: none */
    bool rotary_pairs;
    attn_nn_score score;
    bool plain;
    int64_t hidden, heads;
    double dropout;
} attn_nn_multi_head;
typedef struct attn_nn_multi_head_options {
    int64_t hidden, heads;                    /* heads must divide hidden; otherwise ATTN_ERROR_ARGUMENT is returned */
    int64_t query_size, key_size, value_size; /* 0: hidden */
    attn_nn_score score;
    /* True: there is no W_o, and the result is the concatenation of the heads. The other weights are named query,
     * key and value instead of W_q, W_k and W_v. */
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
/* These functions allocate and free a cache. A cache whose bytes are all zero may be freed too. `dtype` must be the
 * type of the layers. If the layers are F32, it may also be BF16. Keys and values are then rounded to bf16 and need
 * half the memory. ATTN_ERROR_MEMORY: there is no memory. */
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
/* Reorders the rows: new row i is the old row rows[i]. If `shared` is not NULL, the first shared[i] tokens of rows i
 * and rows[i] must be equal, and are not copied. Tokens are copied in groups, through spare->k. `spare` has the cache's
 * type, rows and channels, and room for at least one token. spare->v is not read and may be NULL. */
void attn_nn_kv_cache_reorder(attn_nn_kv_cache *cache, attn_nn_kv_cache *spare, const int64_t *rows,
                              const int64_t *shared);
/* Changes the cache to n rows with room for `capacity` tokens. New row i is the old row rows[i], or row i if `rows` is
 * NULL. If the rows are strictly ascending and `capacity` is unchanged, rows move within the old memory. Otherwise they
 * move to new memory, and the old memory is freed. ATTN_ERROR_SHAPE: the cache holds more tokens than `capacity`, or
 * has fewer than n rows and `rows` is NULL. ATTN_ERROR_MEMORY: there is no memory. On error the cache is unchanged. */
attn_status attn_nn_kv_cache_select(attn_nn_kv_cache *cache, attn_context *context, const int64_t *rows, int64_t n,
                                    int64_t capacity);

/* Self-attention of the axial transformer (Ho et al. 2019, arXiv:1912.12180). It has H heads of Dh channels, and its
 * scale is 1/sqrt(Dh). The parameters are to_q.weight [H*Dh,D], to_kv.weight [2*H*Dh,D] (keys, then values),
 * to_out.{weight,bias}. */
typedef struct attn_nn_self_attention {
    attn_nn_linear to_q, to_kv, to_out;
    int64_t heads, dim_head;
} attn_nn_self_attention;
/* dim_head 0 means dim / heads. ATTN_ERROR_ARGUMENT: dim_head is 0 and heads does not divide dim. */
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

/* Attention followed by a residual connection and a norm, as in DETR (Carion et al. 2020, arXiv:2005.12872). There are
 * M heads of Dh channels. The parameters are w_q, w_k, w_v [M,D,Dh], proj.weight [D,M*Dh] and layer_norm.*. If key_only
 * is set, attention.u [M,1,Dh] replaces w_q, and the weights of every query are the softmax of u . k (Zhu et al. 2019,
 * arXiv:1904.05873). */
typedef struct attn_nn_detr_attention {
    attn_tensor *w_q, *w_k, *w_v, *u;
    attn_nn_linear proj;
    attn_nn_layer_norm layer_norm;
    int64_t heads, dim_head;
    double dropout;
} attn_nn_detr_attention;
void attn_nn_detr_attention_init(attn_nn_detr_attention *layer, attn_nn_builder *builder, int64_t heads, int64_t dim,
                                 int64_t dim_head, double dropout, bool key_only);
/* Attends x_q [B,Nq,D] to x_kv [B,Nk,D]. If x_kv is NULL, attends x_q to itself. The positions p_q [1,Nq,D] or [B,Nq,D]
 * are added to the input of the queries. The positions p_kv [1,Nk,D] or [B,Nk,D] are added to the input of the keys,
 * but not to that of the values. Both may be NULL. With key_only, x_kv and the positions must be NULL. *weights
 * (weights may be NULL) gets [B,M,Nq,Nk], with key_only [B,M,1,Nk]. ATTN_ERROR_SHAPE: the shapes do not fit. */
attn_tensor *attn_nn_detr_attention_forward(const attn_nn_detr_attention *layer, attn_tape *tape, attn_tensor *x_q,
                                            attn_tensor *x_kv, attn_tensor *p_q, attn_tensor *p_kv,
                                            attn_tensor **weights);

/* ------------------------------------------------------------------------------------ transformer blocks */

typedef struct attn_nn_block_options {
    int64_t hidden, ffn_hidden, heads;
    double dropout;
    bool bias;     /* whether the attention's projections have biases */
    bool pre_norm; /* true: norms come before the layers; false: norms come after the residual connections */
    attn_activation activation;
    double eps;         /* eps of the norms; 0: 1e-5 */
    double ffn_dropout; /* dropout of the hidden layer of the feed-forward network */
    /* Further forms of an encoder block. rms: norms divide by the root mean square; norm_plain, ffn_plain: norms and
     * the feed-forward network have no biases; gated: the feed-forward network has a gate; unnormed: there is no norm
     * before the attention. */
    bool rms, norm_plain, ffn_plain, gated, unnormed;
    /* angles that rotate queries and keys, and how (attn_nn_multi_head) */
    attn_tensor *rotary;
    bool rotary_pairs;
} attn_nn_block_options;

/* An encoder block. It computes addnorm2(y, ffn(y)) with y = addnorm1(x, attention(x, x, x)). If pre_norm is set, it
 * computes y + ffn(norm2(y)) with y = x + attention(norm1(x)). The parameter names are the same in both cases. */
typedef struct attn_nn_encoder_block {
    attn_nn_multi_head attention;
    attn_nn_add_norm addnorm1, addnorm2;
    attn_nn_ffn ffn;
} attn_nn_encoder_block;
void attn_nn_encoder_block_init(attn_nn_encoder_block *block, attn_nn_builder *builder,
                                const attn_nn_block_options *options);
/* Runs the block on x [B,T,D] and returns the same shape. *weights gets [B,H,T,T]. As in DETR, `positions` [1,T,D] or
 * [B,T,D] are added to the input of queries and keys, but not to that of values. `positions` may be NULL. */
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
/* Positions that are added to the two inputs of a decoder block, as in attn_nn_encoder_block_forward. NULL: no
 * positions are added. */
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
 * [B] holds the encoder's keys and values of B sentences. The rows / B hypotheses of a sentence share the keys and
 * values of that sentence.
 */
attn_tensor *attn_nn_decoder_block_step(const attn_nn_decoder_block *block, attn_tape *tape, attn_tensor *x,
                                        attn_nn_kv_cache *self, const attn_nn_kv_cache *cross,
                                        const attn_nn_mask *cross_mask);

#endif
