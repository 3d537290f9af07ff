/* SPDX-License-Identifier: MIT
 *
 * Implements attention, followed by a residual connection and a norm. Each of the M heads has its own weight [D,Dh].
 * One parameter [M,D,Dh] holds the weights of all heads.
 */
#include "nn/check.h"

#include "base/context.h"
#include "nn/linear_weight.h"
#include "nn/named.h"
#include "tensor/parts.h"
#include "tensor/tape_state.h"

#include <math.h>

/* Returns the initial values of a weight [M,D,Dh]. PyTorch's policy computes the fans of Xavier's initial values
 * from the first two lengths. */
static attn_nn_initializer head_fill(attn_nn_policy policy, int64_t heads, int64_t dim, int64_t dim_head)
{
    if (policy == ATTN_POLICY_TORCH) {
        double fans = (double)dim * (double)dim_head + (double)heads * (double)dim_head;
        return (attn_nn_initializer){.start = ATTN_INIT_NORMAL, .scale = sqrt(2 / fans)};
    }
    return (attn_nn_initializer){
        .start = ATTN_INIT_XAVIER_UNIFORM, .fan_in = (double)dim, .fan_out = (double)heads * (double)dim_head};
}

/* Returns the initial values of the projection, whose fans are `fans` together. The original draws them from Xavier's
 * normal distribution too. */
static attn_nn_initializer proj_fill(attn_nn_policy policy, int64_t fans)
{
    return policy == ATTN_POLICY_TORCH
               ? (attn_nn_initializer){.start = ATTN_INIT_NORMAL, .scale = sqrt(2 / (double)fans)}
               : (attn_nn_initializer){.start = ATTN_INIT_XAVIER_UNIFORM};
}

void attn_nn_detr_attention_init(attn_nn_detr_attention *layer, attn_nn_builder *builder, int64_t heads, int64_t dim,
                                 int64_t dim_head, double dropout, bool key_only)
{
    int64_t shape[3] = {heads, dim, dim_head};
    attn_nn_initializer fill = head_fill(builder->policy, heads, dim, dim_head);
    *layer = (attn_nn_detr_attention){.heads = heads, .dim_head = dim_head, .dropout = dropout};
    if (!key_only)
        layer->w_q = attn_nn_parameter(builder, "w_q", 3, shape, fill);
    layer->w_k = attn_nn_parameter(builder, "w_k", 3, shape, fill);
    layer->w_v = attn_nn_parameter(builder, "w_v", 3, shape, fill);
    if (key_only) {
        attn_nn_push(builder, "attention");
        layer->u = attn_nn_parameter(builder, "u", 3, (int64_t[]){heads, 1, dim_head},
                                     head_fill(builder->policy, heads, 1, dim_head));
        attn_nn_pop(builder);
    }
    attn_nn_push(builder, "proj");
    layer->proj.weight =
        attn__nn_linear_weight(builder, heads * dim_head, dim, proj_fill(builder->policy, heads * dim_head + dim));
    attn_nn_pop(builder);
    attn__nn_layer_norm_named(&layer->layer_norm, builder, "layer_norm", dim, 0);
}

/* Multiplies x [B,N,D] by the weight w [M,D,Dh] of M heads. Returns [B,N,M*Dh]: the channels of a row are those of
 * head 0, then those of head 1, and so on. */
static attn_tensor *project(attn_tape *tape, attn_tensor *x, attn_tensor *w)
{
    attn_tensor *turned = attn_permute(tape, w, (int[]){0, 2, 1});
    if (!x || !turned)
        return NULL;
    return attn_linear(tape, x, attn_reshape(tape, turned, 2, (int64_t[]){-1, attn_tensor_length(w, 1)}), NULL,
                       ATTN_ACTIVATION_IDENTITY);
}

static attn_tensor *attend(const attn_nn_detr_attention *layer, attn_tape *tape, attn_tensor *q, attn_tensor *k,
                           attn_tensor *v, int64_t queries, attn_tensor **weights)
{
    if (!q || !k || !v)
        return NULL;
    int64_t batch = attn_tensor_length(k, 0);
    attn_heads heads = {.batch = batch,
                        .heads = layer->heads,
                        .queries = queries,
                        .keys = attn_tensor_length(k, 1),
                        .dim = layer->dim_head};
    attn_attention a = {.q = {q, 0},
                        .k = {k, 0},
                        .v = {v, 0},
                        .rank = 3,
                        .shape = {batch, queries, layer->heads * layer->dim_head},
                        .weights = weights,
                        .weights_rank = 4,
                        .weights_shape = {batch, layer->heads, queries, heads.keys}};
    if (attn_problem_heads(&a.problem, &heads) != ATTN_OK) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE, "attention with separate heads: %s",
                   attn_context_error(NULL));
        return NULL;
    }
    /* u is one query that all images of the batch share, so its stride over the batch is 0; its scores are not
     * scaled */
    if (layer->u) {
        a.problem.dims[0].q = 0;
        a.problem.scale = 1;
    }
    a.problem.dtype = attn_tensor_dtype(q);
    return attn_nn_linear_forward(&layer->proj, tape, attn_attend(tape, &a));
}

static attn_tensor *plus(attn_tape *tape, attn_tensor *x, attn_tensor *position)
{
    return position ? attn_add(tape, x, position) : x;
}

static attn_tensor *residual(const attn_nn_detr_attention *layer, attn_tape *tape, attn_tensor *x, attn_tensor *y)
{
    const attn_nn_layer_norm *norm = &layer->layer_norm;
    return attn_add_layer_norm(tape, x, y, layer->dropout, norm->weight, norm->bias, norm->eps);
}

attn_tensor *attn_nn_detr_attention_forward(const attn_nn_detr_attention *layer, attn_tape *tape, attn_tensor *x_q,
                                            attn_tensor *x_kv, attn_tensor *p_q, attn_tensor *p_kv,
                                            attn_tensor **weights)
{
    x_kv = x_kv ? x_kv : x_q;
    if (!attn__nn_attention_fits(tape, x_q, x_kv, x_kv, NULL) || !attn__nn_positions_fit(tape, "p_q", x_q, p_q) ||
        !attn__nn_positions_fit(tape, "p_kv", x_kv, p_kv))
        return NULL;
    attn_tensor *k = project(tape, plus(tape, x_kv, p_kv), layer->w_k), *v = project(tape, x_kv, layer->w_v);
    /* The result is one vector for all queries. It is added to zeros in the shape of x_q, so that the dropout that
     * follows differs between queries. */
    if (layer->u) {
        attn_tensor *one = attend(layer, tape, layer->u, k, v, 1, weights);
        attn_tensor *zeros = attn_tape_tensor(tape, attn_tensor_dtype(x_q), 3, attn_tensor_shape(x_q), NULL);
        return residual(layer, tape, x_q, attn_add(tape, zeros, one));
    }
    attn_tensor *q = project(tape, plus(tape, x_q, p_q), layer->w_q);
    return residual(layer, tape, x_q, attend(layer, tape, q, k, v, attn_tensor_length(x_q, 1), weights));
}
