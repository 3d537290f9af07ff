/* SPDX-License-Identifier: MIT
 * Computes y = x w^T + b along an axis that is not the last one. For images with their channels first, this is the 1x1
 * convolution. x has the shape [outer, in, inner]. For each outer index, w is multiplied by a matrix [in, inner], which
 * is read in place without a transposition. In x or y, the channels may also be the last axis. The matrix is then
 * [inner, channels]. */
#include "base/context.h"
#include "base/parallel.h"
#include "tensor/matrix_product.h"
#include "tensor/spatial.h"
#include "tensor/op.h"
#include "tensor/packed_weights.h"
#include "tensor/parts.h"

#include <string.h>

enum { X, W, B, INPUTS };

typedef struct axis_detail {
    int64_t outer, in, out, inner;
    bool x_last, y_last; /* not both */
} axis_detail;

static void *at(const void *data, attn_dtype dtype, int64_t offset)
{
    return (char *)(uintptr_t)data + offset * (int64_t)attn_dtype_size(dtype);
}

/* Returns the distance between two rows of a matrix, which is [channels, inner], or [inner, channels] if `last` is
 * true. */
static int64_t ld_of(const axis_detail *d, bool last, int64_t channels)
{
    return last ? channels : d->inner;
}

/* Computes dX = w^T dY for each outer index. */
static void input_gradient(attn_tape *tape, const attn__node *node, const axis_detail *d, attn__target dx)
{
    attn_dtype dtype = node->y->dtype;
    const attn__gemm_operand w = attn__matrix_rows(node->saved[W].data, d->in, false);
    for (int64_t i = 0; i < d->outer && dx.data; i++) {
        const void *data = at(node->y->grad->data, dtype, i * d->out * d->inner);
        attn__gemm_operand dy = attn__matrix_rows(data, ld_of(d, d->y_last, d->out), d->y_last);
        tape->failed |= !attn__gemm(tape, &(attn__gemm_problem){.dtype = dtype,
                                                                .m = d->x_last ? d->inner : d->in,
                                                                .n = d->x_last ? d->in : d->inner,
                                                                .k = d->out,
                                                                .a = d->x_last ? dy : w,
                                                                .b = d->x_last ? w : dy,
                                                                .c = at(dx.data, dtype, i * d->in * d->inner),
                                                                .ldc = ld_of(d, d->x_last, d->in),
                                                                .add = dx.add});
    }
}

/* Computes dw, the sum of dY X^T over all outer indices. */
static void weight_gradient(attn_tape *tape, const attn__node *node, const axis_detail *d, attn__target dw)
{
    attn_dtype dtype = node->y->dtype;
    for (int64_t i = 0; i < d->outer && dw.data; i++)
        tape->failed |= !attn__gemm(
            tape, &(attn__gemm_problem){.dtype = dtype,
                                        .m = d->out,
                                        .n = d->in,
                                        .k = d->inner,
                                        .a = attn__matrix_rows(at(node->y->grad->data, dtype, i * d->out * d->inner),
                                                               ld_of(d, d->y_last, d->out), !d->y_last),
                                        .b = attn__matrix_rows(at(node->saved[X].data, dtype, i * d->in * d->inner),
                                                               ld_of(d, d->x_last, d->in), !d->x_last),
                                        .c = dw.data,
                                        .ldc = d->in,
                                        .add = true});
}

/* Returns the sizes of y, seen as [batch, channels, plane], and the address of y's gradient. */
static attn__batch_norm_args planes_of(const axis_detail *d)
{
    return (attn__batch_norm_args){
        .batch = d->y_last ? d->outer * d->inner : d->outer, .channels = d->out, .plane = d->y_last ? 1 : d->inner};
}

static void linear_axis_backward(attn_tape *tape, attn__node *node)
{
    const axis_detail *d = node->detail;
    input_gradient(tape, node, d, attn__grad_target(tape, node->x[X]));
    weight_gradient(tape, node, d, attn__grad_target_added(tape, node->x[W]));
    attn__target db = attn__grad_target(tape, node->x[B]);
    attn__batch_norm_args args = planes_of(d);
    args.dy = node->y->grad->data;
    args.dbias = db.data;
    args.add_bias = db.add;
    if (db.data)
        attn__sum_channels(tape->context, node->y->dtype, &args);
}

/* Returns the name of the public function that computes this operation, for error messages. */
static const char *name_of(int from, int to)
{
    return from == to ? "linear_axis" : "linear_between";
}

static bool plan(attn_tape *tape, const attn_tensor *x, int axis, int to, const attn_tensor *w, const attn_tensor *b,
                 axis_detail *d)
{
    char tx[ATTN__SHAPE_TEXT], tw[ATTN__SHAPE_TEXT], tb[ATTN__SHAPE_TEXT];
    int first = axis < to ? axis : to;
    *d = (axis_detail){.outer = 1, .inner = 1, .x_last = to < axis, .y_last = axis < to};
    for (int i = 0; i < x->rank; i++) {
        d->outer *= i < first ? x->shape[i] : 1;
        d->inner *= i >= first && i != axis ? x->shape[i] : 1;
    }
    if (w->rank == 2 && x->shape[axis] == w->shape[1] && (!b || (b->rank == 1 && b->shape[0] == w->shape[0]))) {
        d->in = w->shape[1];
        d->out = w->shape[0];
        return true;
    }
    attn__op_shape_error(tape, "%s: axis %d of x %s, w %s, b %s; expected w [out,%lld], b [out]", name_of(axis, to),
                         axis, attn__shape_text(x, tx), attn__shape_text(w, tw), b ? attn__shape_text(b, tb) : "none",
                         (long long)x->shape[axis]);
    return false;
}

static bool run(attn_tape *tape, const axis_detail *d, const attn_tensor *x, const attn_tensor *w, const attn_tensor *b,
                attn_tensor *y)
{
    attn_dtype dtype = y->dtype;
    bool bf16;
    const void *rows = attn__weight_rows(tape, w, &bf16);
    bool done = rows != NULL;
    const attn__gemm_operand weights = {rows, d->in, 1, .bf16 = bf16};
    for (int64_t i = 0; i < d->outer && done; i++) {
        const void *data = at(x->data, dtype, i * d->in * d->inner);
        attn__gemm_operand from = attn__matrix_rows(data, ld_of(d, d->x_last, d->in), d->x_last);
        done = attn__gemm(tape, &(attn__gemm_problem){.dtype = dtype,
                                                      .m = d->y_last ? d->inner : d->out,
                                                      .n = d->y_last ? d->out : d->inner,
                                                      .k = d->in,
                                                      .a = d->y_last ? from : weights,
                                                      .b = d->y_last ? weights : from,
                                                      .c = at(y->data, dtype, i * d->out * d->inner),
                                                      .ldc = ld_of(d, d->y_last, d->out)});
    }
    attn__batch_norm_args args = planes_of(d);
    args.y = y->data;
    args.bias = b ? b->data : NULL;
    if (b && done)
        attn__parallel_range(tape->context->threads, args.channels, 1,
                             attn__batch_norm_for(dtype == ATTN_F64, tape->context->isa)->add_bias, &args);
    return done;
}

/* Computes the shape of y. This is x's shape without axis `from`, and with an axis of length `out` inserted at `to`. */
static void shape_of(const attn_tensor *x, int from, int to, int64_t out, int64_t shape[ATTN_MAX_RANK])
{
    for (int i = 0; i < x->rank; i++) {
        int other = i > to ? i - 1 : i; /* index of this axis of y if the axis `to` is left out */
        shape[i] = i == to ? out : x->shape[other >= from ? other + 1 : other];
    }
}

/* Computes x w^T + b + scale (x A^T) B^T. `bare` is the weight without its adapter. It is used to compute x w^T + b by
 * a recursive call. */
static attn_tensor *with_low_rank(attn_tape *tape, attn_tensor *x, int from, int to, attn_tensor *w, attn_tensor *b)
{
    const attn__low_rank *adapter = w->low_rank;
    attn_tensor *bare = attn__op_view(tape, w, 0, w->rank, w->shape);
    attn_tensor *y = attn_linear_between(tape, x, from, to, bare, b);
    attn_tensor *narrow = attn_linear_between(tape, x, from, to, adapter->a, NULL);
    attn_tensor *change = attn_linear_between(tape, narrow, to, to, adapter->b, NULL);
    return attn_add(tape, y, attn_affine(tape, change, adapter->scale, 0));
}

attn_tensor *attn_linear_between(attn_tape *tape, attn_tensor *x, int from, int to, attn_tensor *w, attn_tensor *b)
{
    ATTN__TAPE_CALL(tape->context);
    if (attn__op_is_adapted(w))
        return with_low_rank(tape, x, from, to, w, b);
    axis_detail d;
    const char *name = name_of(from, to);
    /* packed weights have no data; they are checked when they are read */
    const attn_tensor *data = attn__op_is_packed(w, x) ? x : w;
    if (!attn__op_accepts(tape, name, b ? 3 : 2, x, data, b) || (from = attn__op_axis(tape, name, x, from)) < 0 ||
        (to = attn__op_axis(tape, name, x, to)) < 0)
        return NULL;
    if (from == to && from == x->rank - 1)
        return attn_linear(tape, x, w, b, ATTN_ACTIVATION_IDENTITY);
    if (from != to && from != x->rank - 1 && to != x->rank - 1)
        return attn__op_shape_error(tape, "linear_between: from axis %d to %d; one of them must be the last axis", from,
                                    to);
    if (!plan(tape, x, from, to, w, b, &d))
        return NULL;
    int64_t shape[ATTN_MAX_RANK];
    shape_of(x, from, to, d.out, shape);
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

attn_tensor *attn_linear_axis(attn_tape *tape, attn_tensor *x, int axis, attn_tensor *w, attn_tensor *b)
{
    ATTN__TAPE_CALL(tape->context);
    return attn_linear_between(tape, x, axis, axis, w, b);
}
