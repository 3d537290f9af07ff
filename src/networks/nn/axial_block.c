/* SPDX-License-Identifier: MIT
 *
 * Implements the blocks of the axial transformer. A block runs on a whole array, or on one position at a time.
 */
#include "nn/axial.h"

#include "base/context.h"
#include "nn/axis_weights.h"
#include "nn/named.h"
#include "tensor/number.h"
#include "tensor/tape_state.h"

#include <string.h>

/* Multiplies the initial values of a parameter by `factor`. */
static void shrink(attn_tensor *x, double factor)
{
    for (int64_t i = 0; x && attn_tensor_data(x) && i < attn_tensor_size(x); i++)
        attn__set_number(x, i, factor * attn__number(x, i));
}

void attn_nn_axial_block_init(attn_nn_axial_block *block, attn_nn_builder *builder,
                              const attn_nn_axial_block_options *options)
{
    int64_t dim = options->dim;
    *block = (attn_nn_axial_block){.dropout = options->dropout};
    attn__nn_layer_norm_named(&block->ln1, builder, "ln1", dim, 0);
    attn_nn_push(builder, "attention");
    attn_nn_multi_head_init(&block->attention, builder,
                            &(attn_nn_multi_head_options){.hidden = dim, .heads = options->heads, .bias = true});
    attn_nn_pop(builder);
    attn__nn_layer_norm_named(&block->ln2, builder, "ln2", dim, 0);
    attn__nn_linear_named(&block->dense1, builder, "dense1", dim, dim, true);
    attn__nn_linear_named(&block->dense2, builder, "dense2", dim, dim, true);
    shrink(block->attention.w_o.weight, options->residual_scale);
    shrink(block->dense2.weight, options->residual_scale);
}

attn_tensor *attn_nn_multi_head_axis(const attn_nn_multi_head *layer, attn_tape *tape, attn_tensor *x, int axis,
                                     attn_causal causal, attn_tensor **weights)
{
    if (layer->score != ATTN_NN_SCORE_DOT || layer->plain) {
        attn__fail(
            attn_tape_context(tape), ATTN_ERROR_UNSUPPORTED,
            layer->plain
                ? "attention along an axis needs a layer with an output projection; this multi-head attention is plain"
                : "attention along an axis supports only dot-product scores");
        return NULL;
    }
    attn_tensor *q = attn_nn_linear_forward(&layer->w_q, tape, x);
    attn_tensor *k = attn_nn_linear_forward(&layer->w_k, tape, x);
    attn_tensor *v = attn_nn_linear_forward(&layer->w_v, tape, x);
    if (!q || !k || !v)
        return NULL;
    int rank = attn_tensor_rank(q);
    attn_axis description = {
        .rank = rank, .axis = axis, .channel_axis = rank - 1, .heads = layer->heads, .causal = causal};
    attn_attention a = {.q = {q, 0}, .k = {k, 0}, .v = {v, 0}, .rank = rank, .dropout = layer->dropout};
    memcpy(description.shape, attn_tensor_shape(q), (size_t)rank * sizeof(int64_t));
    memcpy(a.shape, attn_tensor_shape(q), (size_t)rank * sizeof(int64_t));
    if (attn_problem_axis(&a.problem, &description) != ATTN_OK) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE, "attention along axis %d of an input of %d axes: %s",
                   axis, rank, attn_context_error(NULL));
        return NULL;
    }
    a.problem.dtype = attn_tensor_dtype(q);
    if (!attn__nn_axis_weights_ask(&a, tape, &description, weights))
        return NULL;
    attn_tensor *y = attn_attend(tape, &a);
    attn__nn_axis_weights_turn(tape, &description, weights);
    return attn_nn_linear_forward(&layer->w_o, tape, y);
}

static attn_tensor *plus(const attn_nn_axial_block *block, attn_tape *tape, attn_tensor *x, attn_tensor *y)
{
    return attn_add(tape, x, attn_dropout(tape, y, block->dropout));
}

static attn_tensor *feed_forward(const attn_nn_axial_block *block, attn_tape *tape, attn_tensor *x)
{
    attn_tensor *h = attn_nn_layer_norm_forward(&block->ln2, tape, x);
    h = attn_linear(tape, h, block->dense1.weight, block->dense1.bias, ATTN_ACTIVATION_GELU_SIGMOID);
    return plus(block, tape, x, attn_nn_linear_forward(&block->dense2, tape, h));
}

attn_tensor *attn_nn_axial_block_forward(const attn_nn_axial_block *block, attn_tape *tape, attn_tensor *x, int axis,
                                         attn_causal causal, attn_tensor **weights)
{
    if (!weights) /* A scope is used only if no weights are requested, because its end would free them. */
        attn_scope_begin(tape);
    attn_tensor *h = attn_nn_layer_norm_forward(&block->ln1, tape, x);
    x = plus(block, tape, x, attn_nn_multi_head_axis(&block->attention, tape, h, axis, causal, weights));
    x = feed_forward(block, tape, x);
    return weights ? x : attn_scope_end(tape, x);
}

attn_tensor *attn_nn_axial_block_step(const attn_nn_axial_block *block, attn_tape *tape, attn_tensor *x,
                                      attn_nn_kv_cache *cache)
{
    attn_scope_begin(tape);
    attn_tensor *h = attn_nn_layer_norm_forward(&block->ln1, tape, x), *y = NULL;
    if (h && attn_nn_multi_head_append(&block->attention, tape, h, cache) == ATTN_OK)
        y = attn_nn_multi_head_cached(&block->attention, tape, h, cache, NULL);
    return attn_scope_end(tape, feed_forward(block, tape, plus(block, tape, x, y)));
}
