/* SPDX-License-Identifier: MIT
 * y = x w^T + b along an axis that is not the last one: of images with their channels first this is the 1x1
 * convolution, done where the numbers lie.  x is [outer, in, inner], and each outer index one product of w with the
 * matrix [in, inner] that it finds there, so that nothing is turned over first. */
#include "base/parallel.h"
#include "tensor/gemm.h"
#include "tensor/image.h"
#include "tensor/op.h"

#include <string.h>

enum { X, W, B, INPUTS };

typedef struct axis_detail {
    int64_t outer, in, out, inner;
} axis_detail;

static void *at(const void *data, attn_dtype dtype, int64_t offset)
{
    return (char *)(uintptr_t)data + offset * (int64_t)attn_dtype_size(dtype);
}

/* dX = w^T dY for each outer index. */
static void input_gradient(attn_tape *tape, const attn__node *node, const axis_detail *d, attn__target dx)
{
    attn_dtype dtype = node->y->dtype;
    for (int64_t i = 0; i < d->outer && dx.data; i++)
        tape->failed |= !attn__gemm(tape, &(attn__gemm_args){.dtype = dtype,
                                                             .transpose_a = true,
                                                             .m = d->in,
                                                             .n = d->inner,
                                                             .k = d->out,
                                                             .a = node->saved[W].data,
                                                             .lda = d->in,
                                                             .b = at(node->y->grad->data, dtype, i * d->out * d->inner),
                                                             .ldb = d->inner,
                                                             .c = at(dx.data, dtype, i * d->in * d->inner),
                                                             .ldc = d->inner,
                                                             .add = dx.add});
}

/* dw = the sum of dY X^T over the outer indices. */
static void weight_gradient(attn_tape *tape, const attn__node *node, const axis_detail *d, attn__target dw)
{
    attn_dtype dtype = node->y->dtype;
    for (int64_t i = 0; i < d->outer && dw.data; i++)
        tape->failed |= !attn__gemm(tape, &(attn__gemm_args){.dtype = dtype,
                                                             .transpose_b = true,
                                                             .m = d->out,
                                                             .n = d->in,
                                                             .k = d->inner,
                                                             .a = at(node->y->grad->data, dtype, i * d->out * d->inner),
                                                             .lda = d->inner,
                                                             .b = at(node->saved[X].data, dtype, i * d->in * d->inner),
                                                             .ldb = d->inner,
                                                             .c = dw.data,
                                                             .ldc = d->in,
                                                             .add = true});
}

static void linear_axis_backward(attn_tape *tape, attn__node *node)
{
    const axis_detail *d = node->detail;
    input_gradient(tape, node, d, attn__grad_target(tape, node->x[X]));
    weight_gradient(tape, node, d, attn__grad_target_added(tape, node->x[W]));
    attn__target db = attn__grad_target(tape, node->x[B]);
    attn__image_args args = {.x = node->y->grad->data,
                             .y3 = db.data,
                             .batch = d->outer,
                             .channels = d->out,
                             .plane = d->inner,
                             .add3 = db.add};
    if (db.data)
        attn__parallel_range(tape->context->threads, d->out, 1,
                             attn__image_loops_for(node->y->dtype == ATTN_F64)->sum_channels, &args);
}

static bool plan(attn_tape *tape, const attn_tensor *x, int axis, const attn_tensor *w, const attn_tensor *b,
                 axis_detail *d)
{
    char tx[ATTN__SHAPE_TEXT], tw[ATTN__SHAPE_TEXT], tb[ATTN__SHAPE_TEXT];
    *d = (axis_detail){.outer = 1, .inner = 1};
    for (int i = 0; i < x->rank; i++) {
        d->outer *= i < axis ? x->shape[i] : 1;
        d->inner *= i > axis ? x->shape[i] : 1;
    }
    if (w->rank == 2 && x->shape[axis] == w->shape[1] && (!b || (b->rank == 1 && b->shape[0] == w->shape[0]))) {
        d->in = w->shape[1];
        d->out = w->shape[0];
        return true;
    }
    attn__op_shape_error(tape, "linear_axis: x %s with axis %d, w %s, b %s; wanted [out,in], [out]",
                         attn__shape_text(x, tx), axis, attn__shape_text(w, tw), b ? attn__shape_text(b, tb) : "none");
    return false;
}

static bool run(attn_tape *tape, const axis_detail *d, const attn_tensor *x, const attn_tensor *w, const attn_tensor *b,
                attn_tensor *y)
{
    attn_dtype dtype = y->dtype;
    bool done = true;
    for (int64_t i = 0; i < d->outer && done; i++)
        done = attn__gemm(tape, &(attn__gemm_args){.dtype = dtype,
                                                   .m = d->out,
                                                   .n = d->inner,
                                                   .k = d->in,
                                                   .a = w->data,
                                                   .lda = d->in,
                                                   .b = at(x->data, dtype, i * d->in * d->inner),
                                                   .ldb = d->inner,
                                                   .c = at(y->data, dtype, i * d->out * d->inner),
                                                   .ldc = d->inner});
    attn__image_args args = {
        .y = y->data, .bias = b ? b->data : NULL, .batch = d->outer, .channels = d->out, .plane = d->inner};
    if (b && done)
        attn__parallel_range(tape->context->threads, d->out, 1, attn__image_loops_for(dtype == ATTN_F64)->add_channels,
                             &args);
    return done;
}

attn_tensor *attn_linear_axis(attn_tape *tape, attn_tensor *x, int axis, attn_tensor *w, attn_tensor *b)
{
    axis_detail d;
    if (!attn__op_accepts(tape, "linear_axis", b ? 3 : 2, x, w, b) ||
        (axis = attn__op_axis(tape, "linear_axis", x, axis)) < 0)
        return NULL;
    if (axis == x->rank - 1)
        return attn_linear(tape, x, w, b, ATTN_IDENTITY);
    if (!plan(tape, x, axis, w, b, &d))
        return NULL;
    int64_t shape[ATTN_MAX_RANK];
    memcpy(shape, x->shape, sizeof shape);
    shape[axis] = d.out;
    attn_tensor *y = attn__op_result(tape, x->dtype, x->rank, shape), *inputs[INPUTS] = {x, w, b};
    attn__node *node;
    if (!y || !attn__op_record(tape, &node, linear_axis_backward, y, INPUTS, inputs, INPUTS - 1, sizeof d) ||
        !run(tape, &d, x, w, b, y))
        return NULL;
    if (node) {
        *(axis_detail *)node->detail = d;
        attn__node_save(node, X, x);
        attn__node_save(node, W, w);
    }
    return y;
}
