/* SPDX-License-Identifier: MIT */
#include "tensor/strides.h"

#include <string.h>

typedef struct reduce_detail {
    int axis;
    double scale;
} reduce_detail;

/* Adds `scale` times the gradient of each sum to the gradient of every element in that sum. */
static void reduce_backward(attn_tape *tape, attn__node *node)
{
    const reduce_detail *detail = node->detail;
    attn_tensor *x = node->x[0];
    attn__target dx = attn__grad_target(tape, x);
    if (!dx.data)
        return;
    attn__elementwise_args args = {
        .x = node->y->grad->data, .y = dx.data, .s = {detail->scale}, .add = dx.add, .rank = x->rank};
    memcpy(args.shape, x->shape, sizeof args.shape);
    attn__contiguous(x->rank, x->shape, args.stride_y);
    int64_t step = 1;
    for (int i = x->rank - 1; i >= 0; i--) {
        args.stride_x[i] = i == detail->axis ? 0 : step;
        step *= i == detail->axis ? 1 : x->shape[i];
    }
    attn__strided_run(tape, x->dtype, ATTN__ELEMENTWISE_STRIDED, args);
}

static attn_tensor *reduce(attn_tape *tape, const char *op, attn_tensor *x, int axis, bool mean)
{
    if (!attn__op_accepts(tape, op, 1, x))
        return NULL;
    axis = attn__op_axis(tape, op, x, axis);
    if (axis < 0)
        return NULL;
    int64_t shape[ATTN_MAX_RANK], inner = 1, length = x->shape[axis];
    for (int i = 0; i < x->rank - 1; i++)
        shape[i] = x->shape[i + (i >= axis)];
    for (int i = axis + 1; i < x->rank; i++)
        inner *= x->shape[i];
    attn_tensor *y = attn__op_result(tape, x->dtype, x->rank - 1, shape);
    attn__node *node;
    if (!y || !attn__op_record(tape, &node, reduce_backward, y, 1, &x, 0, sizeof(reduce_detail)))
        return NULL;
    double scale = mean && length > 0 ? 1 / (double)length : 1;
    attn__elementwise_args args = {.x = x->data, .y = y->data, .n = inner, .rows = length, .s = {scale}};
    attn__elementwise_run(tape, x->dtype, ATTN__ELEMENTWISE_REDUCE, &args, y->size, length);
    if (node)
        *(reduce_detail *)node->detail = (reduce_detail){axis, scale};
    return y;
}

attn_tensor *attn_sum(attn_tape *tape, attn_tensor *x, int axis)
{
    ATTN__TAPE_CALL(tape->context);
    return reduce(tape, "sum", x, axis, false);
}

attn_tensor *attn_mean(attn_tape *tape, attn_tensor *x, int axis)
{
    ATTN__TAPE_CALL(tape->context);
    return reduce(tape, "mean", x, axis, true);
}
