/* SPDX-License-Identifier: MIT */
#include "nn/axis_weights.h"

#include "base/context.h"
#include "tensor/tape_state.h"

bool attn__nn_axis_weights_ask(attn_attention *a, attn_tape *tape, const attn_axis *axis, attn_tensor **weights)
{
    int n = 0;
    a->weights = weights;
    if (!weights)
        return true;
    if (axis->rank + 1 > ATTN_MAX_RANK) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_UNSUPPORTED,
                   "the attention weights of an array of %d axes would have %d axes; at most %d are supported",
                   axis->rank, axis->rank + 1, ATTN_MAX_RANK);
        return false;
    }
    for (int i = 0; i < axis->rank - 1; i++)
        if (i != axis->axis)
            a->weights_shape[n++] = axis->shape[i];
    a->weights_shape[n++] = axis->heads;
    a->weights_shape[n++] = axis->shape[axis->axis];
    a->weights_shape[n++] = axis->shape[axis->axis];
    a->weights_rank = n;
    return true;
}

void attn__nn_axis_weights_turn(attn_tape *tape, const attn_axis *axis, attn_tensor **weights)
{
    int order[ATTN_MAX_RANK], n = 0, heads = axis->rank - 2;
    if (!weights || !*weights)
        return;
    order[n++] = 0;
    order[n++] = heads;
    for (int i = 1; i < axis->rank - 1; i++)
        order[n++] = i == axis->axis ? heads + 1 : i > axis->axis ? i - 1 : i;
    order[n] = heads + 2;
    *weights = attn_permute(tape, *weights, order);
}
