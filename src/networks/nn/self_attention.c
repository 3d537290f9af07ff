/* SPDX-License-Identifier: MIT
 *
 * Implements self-attention over a sequence, or along one axis of an array. One projection computes keys and values
 * together. The attention engine reads both from its result, by strides and an offset.
 */
#include "nn/axis_weights.h"
#include "nn/check.h"
#include "nn/linear_weight.h"

#include "base/context.h"
#include "nn/named.h"
#include "tensor/parts.h"
#include "tensor/tape_state.h"

#include <string.h>

void attn_nn_self_attention_init(attn_nn_self_attention *layer, attn_nn_builder *builder, int64_t dim, int64_t heads,
                                 int64_t dim_head)
{
    *layer = (attn_nn_self_attention){0};
    if (heads < 1 || dim < 1 || (dim_head <= 0 && dim % heads != 0)) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT, "%s%s%lld heads do not divide %lld channels", builder->prefix,
                   builder->prefix[0] ? ": " : "", (long long)heads, (long long)dim);
        return;
    }
    layer->heads = heads;
    layer->dim_head = dim_head > 0 ? dim_head : dim / heads;
    int64_t hidden = layer->heads * layer->dim_head;
    attn__nn_linear_named(&layer->to_q, builder, "to_q", dim, hidden, false);
    attn__nn_linear_named(&layer->to_kv, builder, "to_kv", dim, 2 * hidden, false);
    attn__nn_linear_named(&layer->to_out, builder, "to_out", hidden, dim, true);
    /* the weights are not only read by attn_linear, because the channels may be at another axis than the last */
    attn__nn_linear_in_parts(&layer->to_q);
    attn__nn_linear_in_parts(&layer->to_kv);
    attn__nn_linear_in_parts(&layer->to_out);
}

attn_tensor *attn_nn_self_attention_forward(const attn_nn_self_attention *layer, attn_tape *tape, attn_tensor *x,
                                            attn_tensor *kv, attn_tensor **weights)
{
    kv = kv ? kv : x;
    if (!attn__nn_attention_fits(tape, x, kv, kv, NULL))
        return NULL;
    int64_t batch = attn_tensor_length(x, 0), queries = attn_tensor_length(x, 1), keys = attn_tensor_length(kv, 1);
    int64_t hidden = layer->heads * layer->dim_head;
    attn_tensor *q = attn_nn_linear_forward(&layer->to_q, tape, x);
    attn_tensor *both = attn_nn_linear_forward(&layer->to_kv, tape, kv);
    attn_heads heads = {.batch = batch,
                        .heads = layer->heads,
                        .queries = queries,
                        .keys = keys,
                        .dim = layer->dim_head,
                        .k_row = 2 * hidden,
                        .v_row = 2 * hidden};
    attn_attention a = {.q = {q, 0},
                        .k = {both, 0},
                        .v = {both, hidden},
                        .rank = 3,
                        .shape = {batch, queries, hidden},
                        .weights = weights,
                        .weights_rank = 4,
                        .weights_shape = {batch, layer->heads, queries, keys}};
    if (!q || !both || attn_problem_heads(&a.problem, &heads) != ATTN_OK)
        return NULL;
    a.problem.dtype = attn_tensor_dtype(q);
    return attn_nn_linear_forward(&layer->to_out, tape, attn_attend(tape, &a));
}

/* Doubles the strides of all axes before the channels in k and v. This is needed because keys and values share one
 * array with twice the channels. `block` is the number of channels of the keys. Strides smaller than `block` are
 * those inside a head and are not changed. */
static void widen(attn_problem *problem, int64_t block)
{
    for (int i = 0; i < problem->ndims; i++) {
        attn_dim *dim = &problem->dims[i];
        if (dim->k >= block)
            dim->k *= 2;
        if (dim->v >= block)
            dim->v *= 2;
    }
}

/* Moves the channels to the last axis for the attention, so that the channels of a head are contiguous. The output
 * projection moves them back. */
attn_tensor *attn_nn_self_attention_axis(const attn_nn_self_attention *layer, attn_tape *tape, attn_tensor *x, int axis,
                                         int channel_axis, attn_tensor **weights)
{
    int last = x ? attn_tensor_rank(x) - 1 : 0;
    if (x && (axis < 0 || axis > last || channel_axis < 0 || channel_axis > last)) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE,
                   "self-attention: axis is %d and channel_axis %d; both must be 0 to %d", axis, channel_axis, last);
        return NULL;
    }
    if (x && axis == channel_axis) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE,
                   "self-attention: axis and channel_axis are both %d; they must differ", axis);
        return NULL;
    }
    attn_tensor *q = attn_linear_between(tape, x, channel_axis, -1, layer->to_q.weight, NULL);
    attn_tensor *both = attn_linear_between(tape, x, channel_axis, -1, layer->to_kv.weight, NULL);
    if (!q || !both)
        return NULL;
    int rank = attn_tensor_rank(q);
    int64_t hidden = attn_tensor_length(q, rank - 1);
    attn_axis description = {.rank = rank,
                             .axis = axis > channel_axis ? axis - 1 : axis, /* the channels are behind it now */
                             .channel_axis = rank - 1,
                             .heads = layer->heads};
    attn_attention a = {.q = {q, 0}, .k = {both, 0}, .v = {both, hidden}, .rank = rank};
    memcpy(description.shape, attn_tensor_shape(q), (size_t)rank * sizeof(int64_t));
    memcpy(a.shape, attn_tensor_shape(q), (size_t)rank * sizeof(int64_t));
    if (attn_problem_axis(&a.problem, &description) != ATTN_OK) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE,
                   "self-attention along axis %d with channels at axis %d: %s", axis, channel_axis,
                   attn_context_error(NULL));
        return NULL;
    }
    widen(&a.problem, hidden);
    a.problem.dtype = attn_tensor_dtype(q);
    if (!attn__nn_axis_weights_ask(&a, tape, &description, weights))
        return NULL;
    attn_tensor *y = attn_attend(tape, &a);
    attn__nn_axis_weights_turn(tape, &description, weights);
    return attn_linear_between(tape, y, -1, channel_axis, layer->to_out.weight, layer->to_out.bias);
}
