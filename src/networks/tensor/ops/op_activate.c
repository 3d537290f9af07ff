/* SPDX-License-Identifier: MIT */
#include "tensor/op.h"

static void activate_backward(attn_tape *tape, attn__node *node)
{
    attn_tensor *y = node->y;
    attn__hold dx = attn__grad_reuse(tape, y);
    if (!dx.data)
        return;
    attn__elementwise_args args = {
        .x = y->grad->data, .x2 = node->saved[0].data, .y = dx.data, .kind = *(int *)node->detail};
    attn__elementwise_run(tape, y->dtype, ATTN__ELEMENTWISE_ACTIVATE_BACKWARD, &args, y->size, 1);
    attn__grad_give(tape, node->x[0], dx);
}

attn_tensor *attn_activate(attn_tape *tape, attn_tensor *x, attn_activation activation)
{
    ATTN__TAPE_CALL(tape->context);
    if (!attn__op_accepts(tape, "activate", 1, x))
        return NULL;
    if (!attn__activation_exists((int)activation)) {
        attn__fail(tape->context, ATTN_ERROR_ARGUMENT, "activate: activation is %d; it must be between 0 and %d",
                   (int)activation, (int)ATTN_ACTIVATION_SILU);
        return NULL;
    }
    if (activation == ATTN_ACTIVATION_IDENTITY)
        return x;
    int kind = (int)activation;
    attn_tensor *y = attn__op_result(tape, x->dtype, x->rank, x->shape);
    attn__node *node;
    if (!y || !attn__op_record(tape, &node, activate_backward, y, 1, &x, 1, sizeof kind))
        return NULL;
    attn__elementwise_args args = {.x = x->data, .y = y->data, .kind = kind};
    attn__elementwise_run(tape, x->dtype, ATTN__ELEMENTWISE_ACTIVATE, &args, x->size, 1);
    if (node) {
        *(int *)node->detail = kind;
        attn__node_save(node, 0, attn__activation_keeps_input(kind) ? x : y);
    }
    return y;
}
