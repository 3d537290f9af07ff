/* SPDX-License-Identifier: MIT
 *
 * Implements operations that copy tensors. They permute axes, concatenate tensors, or take a part of a tensor. */
#include "tensor/strides.h"

#include <stdio.h>
#include <string.h>

/* ----------------------------------------------------------------------------------------- permutation */

typedef struct permute_detail {
    int axes[ATTN_MAX_RANK];
} permute_detail;

/* Returns the arguments of a copy whose loops run over y's axes. stride_x holds the strides of x in the order of y's
 * axes. */
static attn__elementwise_args permuted(const attn_tensor *x, const attn_tensor *y, const int *axes)
{
    attn__elementwise_args args = {.s = {1}, .rank = y->rank};
    int64_t own[ATTN_MAX_RANK];
    attn__contiguous(x->rank, x->shape, own);
    memcpy(args.shape, y->shape, sizeof args.shape);
    attn__contiguous(y->rank, y->shape, args.stride_y);
    for (int i = 0; i < y->rank; i++)
        args.stride_x[i] = own[axes[i]];
    return args;
}

static void count_moved(attn_tape *tape, const attn_tensor *x)
{
    tape->moved += attn__tensor_bytes(x);
}

static void permute_backward(attn_tape *tape, attn__node *node)
{
    attn_tensor *x = node->x[0], *y = node->y;
    attn__target dx = attn__grad_target(tape, x);
    if (!dx.data)
        return;
    attn__elementwise_args args = permuted(x, y, ((permute_detail *)node->detail)->axes), back = args;
    memcpy(back.stride_x, args.stride_y, sizeof back.stride_x);
    memcpy(back.stride_y, args.stride_x, sizeof back.stride_y);
    back.x = y->grad->data;
    back.y = dx.data;
    back.add = dx.add;
    count_moved(tape, x);
    attn__strided_run(tape, x->dtype, ATTN__ELEMENTWISE_STRIDED, back);
}

static bool is_permutation(int rank, const int *axes)
{
    unsigned seen = 0;
    for (int i = 0; i < rank; i++) {
        if (axes[i] < 0 || axes[i] >= rank)
            return false;
        seen |= 1u << axes[i];
    }
    return seen == (1u << rank) - 1;
}

static attn_tensor *refuse_axes(attn_tape *tape, int rank, const int *axes)
{
    char text[ATTN__SHAPE_TEXT] = "";
    for (int i = 0, n = 0; i < rank; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%d", i ? "," : "", axes[i]);
    return attn__op_shape_error(tape, "permute: the axes are [%s]; expected a permutation of 0 to %d", text, rank - 1);
}

/* Unlike in other operations, x may also have 32-bit integers. */
static bool copyable(attn_tape *tape, const char *op, const attn_tensor *x)
{
    if (!x)
        return false;
    return x->dtype == ATTN_I32 && x->data ? true : attn__op_accepts(tape, op, 1, x);
}

attn_tensor *attn_permute(attn_tape *tape, attn_tensor *x, const int *axes)
{
    ATTN__TAPE_CALL(tape->context);
    if (!copyable(tape, "permute", x))
        return NULL;
    if (!is_permutation(x->rank, axes))
        return refuse_axes(tape, x->rank, axes);
    int64_t shape[ATTN_MAX_RANK];
    for (int i = 0; i < x->rank; i++)
        shape[i] = x->shape[axes[i]];
    attn_tensor *y = attn__op_result(tape, x->dtype, x->rank, shape);
    attn__node *node;
    if (!y || !attn__op_record(tape, &node, permute_backward, y, 1, &x, 0, sizeof(permute_detail)))
        return NULL;
    attn__elementwise_args args = permuted(x, y, axes);
    args.x = x->data;
    args.y = y->data;
    count_moved(tape, x);
    attn__strided_run(tape, x->dtype, ATTN__ELEMENTWISE_STRIDED, args);
    if (node)
        memcpy(((permute_detail *)node->detail)->axes, axes, (size_t)x->rank * sizeof *axes);
    return y;
}

/* --------------------------------------------------------------------------------------- parts of an axis */

/* A part of a whole tensor. Both tensors are seen as arrays [outer, length, inner]. The part begins at index `begin` of
 * the whole tensor's middle axis. */
typedef struct part {
    int axis;
    int64_t begin;
} part;

static void copy_part(attn_tape *tape, const attn_tensor *whole, const attn_tensor *piece, part p, const void *from,
                      void *to, bool to_whole, bool add)
{
    attn__elementwise_args args = {.x = from, .y = to, .s = {1}, .add = add, .rank = piece->rank};
    int64_t whole_stride[ATTN_MAX_RANK] = {0}, piece_stride[ATTN_MAX_RANK] = {0};
    attn__contiguous(whole->rank, whole->shape, whole_stride);
    attn__contiguous(piece->rank, piece->shape, piece_stride);
    int64_t offset = p.begin * whole_stride[p.axis] * (int64_t)attn_dtype_size(whole->dtype);
    memcpy(args.shape, piece->shape, sizeof args.shape);
    memcpy(args.stride_x, to_whole ? piece_stride : whole_stride, sizeof args.stride_x);
    memcpy(args.stride_y, to_whole ? whole_stride : piece_stride, sizeof args.stride_y);
    if (to_whole)
        args.y = (char *)to + offset;
    else
        args.x = (const char *)from + offset;
    count_moved(tape, piece);
    attn__strided_run(tape, whole->dtype, ATTN__ELEMENTWISE_STRIDED, args);
}

static void slice_backward(attn_tape *tape, attn__node *node)
{
    attn__target dx = attn__grad_target_added(tape, node->x[0]);
    if (dx.data)
        copy_part(tape, node->x[0], node->y, *(part *)node->detail, node->y->grad->data, dx.data, true, true);
}

attn_tensor *attn_slice(attn_tape *tape, attn_tensor *x, int axis, int64_t begin, int64_t end)
{
    ATTN__TAPE_CALL(tape->context);
    if (!copyable(tape, "slice", x))
        return NULL;
    axis = attn__op_axis(tape, "slice", x, axis);
    if (axis < 0)
        return NULL;
    if (begin < 0 || end < begin || end > x->shape[axis])
        return attn__op_shape_error(tape, "slice: [%lld, %lld) does not lie in axis %d of length %lld",
                                    (long long)begin, (long long)end, axis, (long long)x->shape[axis]);
    int64_t shape[ATTN_MAX_RANK];
    memcpy(shape, x->shape, sizeof shape);
    shape[axis] = end - begin;
    attn_tensor *y = attn__op_result(tape, x->dtype, x->rank, shape);
    attn__node *node;
    if (!y || !attn__op_record(tape, &node, slice_backward, y, 1, &x, 0, sizeof(part)))
        return NULL;
    part p = {axis, begin};
    copy_part(tape, x, y, p, x->data, y->data, false, false);
    if (node)
        *(part *)node->detail = p;
    return y;
}

static void concat_backward(attn_tape *tape, attn__node *node)
{
    part p = {*(int *)node->detail, 0};
    for (int i = 0; i < node->nx; i++) {
        attn__target dx = attn__grad_target(tape, node->x[i]);
        if (dx.data)
            copy_part(tape, node->y, node->x[i], p, node->y->grad->data, dx.data, false, dx.add);
        p.begin += node->x[i]->shape[p.axis];
    }
}

/* Computes the shape of the concatenation along `axis`. Returns false and records an error if the shapes do not fit. */
static bool concat_shape(attn_tape *tape, attn_tensor *const *xs, int n, int axis, int64_t *shape)
{
    memcpy(shape, xs[0]->shape, sizeof xs[0]->shape);
    for (int i = 1; i < n; i++) {
        attn_tensor with_same_axis = *xs[i];
        with_same_axis.shape[axis] = xs[0]->shape[axis];
        if (xs[i]->dtype != xs[0]->dtype || !attn__same_shape(&with_same_axis, xs[0])) {
            char first[ATTN__SHAPE_TEXT], other[ATTN__SHAPE_TEXT];
            attn__op_shape_error(
                tape, "concat: tensor 0 is %s %s, tensor %d %s %s; types must be equal, and lengths outside of axis %d",
                attn_dtype_name(xs[0]->dtype), attn__shape_text(xs[0], first), i, attn_dtype_name(xs[i]->dtype),
                attn__shape_text(xs[i], other), axis);
            return false;
        }
        shape[axis] += xs[i]->shape[axis];
    }
    return true;
}

attn_tensor *attn_concat(attn_tape *tape, attn_tensor *const *xs, int n, int axis)
{
    ATTN__TAPE_CALL(tape->context);
    int64_t shape[ATTN_MAX_RANK];
    if (n < 1)
        return attn__op_shape_error(tape, "concat: expected at least one tensor");
    for (int i = 0; i < n; i++)
        if (!copyable(tape, "concat", xs[i]))
            return NULL;
    axis = attn__op_axis(tape, "concat", xs[0], axis);
    if (axis < 0 || !concat_shape(tape, xs, n, axis, shape))
        return NULL;
    attn_tensor *y = attn__op_result(tape, xs[0]->dtype, xs[0]->rank, shape);
    attn__node *node;
    if (!y || !attn__op_record(tape, &node, concat_backward, y, n, xs, 0, sizeof axis))
        return NULL;
    part p = {axis, 0};
    for (int i = 0; i < n; i++) {
        copy_part(tape, y, xs[i], p, xs[i]->data, y->data, true, false);
        p.begin += xs[i]->shape[axis];
    }
    if (node)
        *(int *)node->detail = axis;
    return y;
}
