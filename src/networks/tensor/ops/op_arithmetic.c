/* SPDX-License-Identifier: MIT
 *
 * Implements sums, differences and products with broadcasting, and x * scale + shift.
 */
#include "tensor/strides.h"

#include <string.h>

typedef struct binary_detail {
    attn__binary kind;
} binary_detail;

/* Computes the strides of x along y's axes. The stride is 0 along an axis where x is broadcast. */
static void stretch(const attn_tensor *x, int rank, int64_t *stride)
{
    int64_t own[ATTN_MAX_RANK];
    attn__contiguous(x->rank, x->shape, own);
    for (int i = 0; i < rank; i++) {
        int axis = i - (rank - x->rank);
        stride[i] = axis < 0 || x->shape[axis] == 1 ? 0 : own[axis];
    }
}

/* Computes an array of the shape of `like`, y = a (kind) b, where `kind` is the operation. a and b give only the
 * shapes. The data are x and x2, which may belong to other tensors. */
static void run(attn_tape *tape, attn__binary kind, const attn_tensor *like, const attn_tensor *a, const void *x,
                const attn_tensor *b, const void *x2, void *y)
{
    attn__elementwise_args args = {.x = x, .x2 = x2, .y = y, .rank = like->rank, .kind = (int)kind};
    memcpy(args.shape, like->shape, sizeof args.shape);
    stretch(a, like->rank, args.stride_x);
    stretch(b, like->rank, args.stride_x2);
    attn__contiguous(like->rank, like->shape, args.stride_y);
    attn__strided_run(tape, like->dtype, ATTN__ELEMENTWISE_BINARY, args);
}

static void scale_into(attn_tape *tape, const attn_tensor *like, const void *x, double scale, void *y)
{
    attn__elementwise_args args = {.x = x, .y = y, .s = {scale, 0}};
    attn__elementwise_run(tape, like->dtype, ATTN__ELEMENTWISE_AFFINE, &args, like->size, 1);
}

/* Returns the gradient of operand `i` of the node, before it is summed over broadcast axes. */
static attn__hold share_of(attn_tape *tape, attn__node *node, int i)
{
    attn_tensor *y = node->y;
    attn__binary kind = ((binary_detail *)node->detail)->kind;
    if (kind == ATTN__BINARY_ADD || (kind == ATTN__BINARY_SUB && i == 0))
        return attn__grad_share(y);
    attn__hold share = attn__scratch(tape, attn__tensor_bytes(y));
    tape->failed |= !share.data;
    if (!share.data)
        return share;
    if (kind == ATTN__BINARY_SUB)
        scale_into(tape, y, y->grad->data, -1, share.data);
    else
        run(tape, ATTN__BINARY_MUL, y, y, y->grad->data, node->x[1 - i], node->saved[1 - i].data, share.data);
    return share;
}

static void binary_backward(attn_tape *tape, attn__node *node)
{
    for (int i = 0; i < 2 && !tape->failed; i++)
        if (attn__grad_wanted(node->x[i]))
            attn__grad_give(tape, node->x[i], attn__sum_to(tape, share_of(tape, node, i), node->y, node->x[i]));
}

/* Computes the shape to which a and b are broadcast. Returns false if there is none. */
static bool broadcast(const attn_tensor *a, const attn_tensor *b, int *rank, int64_t *shape)
{
    *rank = a->rank > b->rank ? a->rank : b->rank;
    for (int i = 0; i < *rank; i++) {
        int ia = i - (*rank - a->rank), ib = i - (*rank - b->rank);
        int64_t na = ia < 0 ? 1 : a->shape[ia], nb = ib < 0 ? 1 : b->shape[ib];
        if (na != nb && na != 1 && nb != 1)
            return false;
        shape[i] = na == 1 ? nb : na;
    }
    return true;
}

static attn_tensor *binary(attn_tape *tape, const char *op, attn__binary kind, attn_tensor *a, attn_tensor *b)
{
    int rank;
    int64_t shape[ATTN_MAX_RANK];
    if (!attn__op_accepts(tape, op, 2, a, b))
        return NULL;
    if (!broadcast(a, b, &rank, shape)) {
        char ta[ATTN__SHAPE_TEXT], tb[ATTN__SHAPE_TEXT];
        return attn__op_shape_error(tape, "%s: shapes %s and %s do not broadcast", op, attn__shape_text(a, ta),
                                    attn__shape_text(b, tb));
    }
    attn_tensor *y = attn__op_result(tape, a->dtype, rank, shape), *inputs[2] = {a, b};
    attn__node *node;
    if (!y || !attn__op_record(tape, &node, binary_backward, y, 2, inputs, 2, sizeof(binary_detail)))
        return NULL;
    run(tape, kind, y, a, a->data, b, b->data, y->data);
    if (node)
        *(binary_detail *)node->detail = (binary_detail){kind};
    for (int i = 0; node && kind == ATTN__BINARY_MUL && i < 2; i++)
        if (attn__grad_wanted(inputs[1 - i]))
            attn__node_save(node, i, inputs[i]);
    return y;
}

attn_tensor *attn_add(attn_tape *tape, attn_tensor *a, attn_tensor *b)
{
    ATTN__TAPE_CALL(tape->context);
    return binary(tape, "add", ATTN__BINARY_ADD, a, b);
}

attn_tensor *attn_sub(attn_tape *tape, attn_tensor *a, attn_tensor *b)
{
    ATTN__TAPE_CALL(tape->context);
    return binary(tape, "sub", ATTN__BINARY_SUB, a, b);
}

attn_tensor *attn_mul(attn_tape *tape, attn_tensor *a, attn_tensor *b)
{
    ATTN__TAPE_CALL(tape->context);
    return binary(tape, "mul", ATTN__BINARY_MUL, a, b);
}

static void affine_backward(attn_tape *tape, attn__node *node)
{
    attn__hold dx = attn__grad_reuse(tape, node->y);
    if (!dx.data)
        return;
    scale_into(tape, node->y, node->y->grad->data, *(double *)node->detail, dx.data);
    attn__grad_give(tape, node->x[0], dx);
}

attn_tensor *attn_affine(attn_tape *tape, attn_tensor *x, double scale, double shift)
{
    ATTN__TAPE_CALL(tape->context);
    if (!attn__op_accepts(tape, "affine", 1, x))
        return NULL;
    attn_tensor *y = attn__op_result(tape, x->dtype, x->rank, x->shape);
    attn__node *node;
    if (!y || !attn__op_record(tape, &node, affine_backward, y, 1, &x, 0, sizeof scale))
        return NULL;
    attn__elementwise_args args = {.x = x->data, .y = y->data, .s = {scale, shift}};
    attn__elementwise_run(tape, x->dtype, ATTN__ELEMENTWISE_AFFINE, &args, x->size, 1);
    if (node)
        *(double *)node->detail = scale;
    return y;
}
