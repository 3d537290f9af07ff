/* SPDX-License-Identifier: MIT
 * Convolution (cross-correlation, as networks have it) in 1 to 3 dimensions, in the matrix unit or by oneDNN where
 * they are there; else, and in double, each image is unfolded into a matrix [channels * taps, positions] and
 * multiplied. */
#include "base/context.h"
#include "base/parallel.h"
#include "tensor/gemm.h"
#include "tensor/image.h"
#include "tensor/dnnl.h"
#include "tensor/op.h"

#include <string.h>

enum { X, W, B, INPUTS };
enum { SAVED_X, SAVED_W, SAVED_Y, SAVED_COUNT };

typedef struct conv_detail {
    int spatial;
    attn__window_grid grid;
    int64_t batch, groups, in_channels, out_channels; /* channels of one group */
    attn_activation activation;
} conv_detail;

static int64_t rows_of(const conv_detail *d)
{
    return d->in_channels * attn__volume(d->grid.kernel);
}

static void *at(const void *data, attn_dtype dtype, int64_t offset)
{
    return (char *)(uintptr_t)data + offset * (int64_t)attn_dtype_size(dtype);
}

static void unfold(attn_tape *tape, const conv_detail *d, attn_dtype dtype, const void *x, void *columns)
{
    attn__image_args args = {.grid = d->grid, .x = x, .y = columns};
    attn__parallel_range(tape->context->threads, rows_of(d), 1, attn__image_loops_for(dtype == ATTN_F64)->unfold,
                         &args);
}

/* The index-th (image, group): offsets of its part of x, w and y. */
typedef struct piece {
    int64_t x, w, y;
} piece;

static piece piece_of(const conv_detail *d, int64_t index)
{
    int64_t group = index % d->groups, out = attn__volume(d->grid.out);
    return (piece){index * d->in_channels * attn__volume(d->grid.in), group * d->out_channels * rows_of(d),
                   index * d->out_channels * out};
}

/* No memory was found: that is a failure, not a reason to compute it in another way.  The sums would be others in
 * their last bits, in a run that must give the same ones. */
static bool out_of_memory(const attn_tape *tape)
{
    return attn_context_status(tape->context) == ATTN_MEMORY;
}

static attn__conv_args args_of(const conv_detail *d, attn__conv_pass pass, const void *x, const void *w,
                               const void *bias, const void *y)
{
    return (attn__conv_args){.pass = pass,
                             .spatial = d->spatial,
                             .grid = d->grid,
                             .batch = d->batch,
                             .groups = d->groups,
                             .in = d->in_channels,
                             .out = d->out_channels,
                             .x = (float *)(uintptr_t)x,
                             .w = (float *)(uintptr_t)w,
                             .bias = (float *)(uintptr_t)bias,
                             .y = (float *)(uintptr_t)y};
}

static bool is_whole(const conv_detail *d, attn_dtype dtype)
{
    return dtype == ATTN_F32 && d->batch > 0 && d->groups * d->in_channels > 0 && d->out_channels > 0 &&
           attn__volume(d->grid.out) > 0;
}

/* One pass by oneDNN; false: to be done otherwise. */
static bool by_dnnl(attn_tape *tape, const conv_detail *d, attn_dtype dtype, const attn__conv_args *args)
{
    return is_whole(d, dtype) && !out_of_memory(tape) && attn__dnnl_convolve(tape, args);
}

/* What was made of x's gradient in memory of its own goes to it, if it was. */
static bool give(attn_tape *tape, attn_tensor *x, attn__hold share, bool done)
{
    if (done)
        attn__grad_give(tape, x, share);
    else
        attn__scratch_release(share);
    tape->failed |= !done && out_of_memory(tape);
    return done;
}

/* A gradient that is added to goes through memory of its own. */
static bool input_gradient_whole(attn_tape *tape, const conv_detail *d, attn__node *node, const void *dy)
{
    attn_tensor *x = node->x[X];
    attn__hold share = attn__scratch(tape, attn__tensor_bytes(x));
    attn__conv_args args = args_of(d, ATTN__CONV_INPUT, share.data, node->saved[SAVED_W].data, NULL, dy);
    return give(tape, x, share, share.data && by_dnnl(tape, d, x->dtype, &args));
}

/* By oneDNN, which overwrites. */
static bool weight_gradient_whole(attn_tape *tape, const conv_detail *d, attn__node *node, const void *dy)
{
    attn_tensor *w = node->x[W];
    attn__hold share = attn__scratch(tape, attn__tensor_bytes(w));
    attn__conv_args args = args_of(d, ATTN__CONV_WEIGHTS, node->saved[SAVED_X].data, share.data, NULL, dy);
    return give(tape, w, share, share.data && by_dnnl(tape, d, w->dtype, &args));
}

static void weight_gradient(attn_tape *tape, const conv_detail *d, attn_dtype dtype, const void *dy, attn__target dw,
                            piece p, const void *columns)
{
    int64_t out = attn__volume(d->grid.out), rows = rows_of(d);
    tape->failed |= !attn__gemm(tape, &(attn__gemm_args){.dtype = dtype,
                                                         .transpose_b = true,
                                                         .m = d->out_channels,
                                                         .n = rows,
                                                         .k = out,
                                                         .a = at(dy, dtype, p.y),
                                                         .lda = out,
                                                         .b = columns,
                                                         .ldb = out,
                                                         .c = at(dw.data, dtype, p.w),
                                                         .ldc = rows,
                                                         .add = true});
}

static void input_gradient(attn_tape *tape, const conv_detail *d, attn_dtype dtype, const void *dy, void *dx, piece p,
                           const void *w, void *columns)
{
    int64_t out = attn__volume(d->grid.out), rows = rows_of(d);
    tape->failed |= !attn__gemm(tape, &(attn__gemm_args){.dtype = dtype,
                                                         .transpose_a = true,
                                                         .m = rows,
                                                         .n = out,
                                                         .k = d->out_channels,
                                                         .a = at(w, dtype, p.w),
                                                         .lda = rows,
                                                         .b = at(dy, dtype, p.y),
                                                         .ldb = out,
                                                         .c = columns,
                                                         .ldc = out});
    attn__image_args args = {.grid = d->grid, .x = columns, .y = at(dx, dtype, p.x)};
    attn__parallel_range(tape->context->threads, d->in_channels, 1, attn__image_loops_for(dtype == ATTN_F64)->fold,
                         &args);
}

/* Gradients of the input and of the weight, those that are wanted, image by image. */
static void gradients_by_unfolding(attn_tape *tape, const conv_detail *d, attn__node *node, const void *dy, bool input,
                                   bool weight)
{
    attn_dtype dtype = node->y->dtype;
    attn__target dx = {0}, dw = {0};
    if (input)
        dx = attn__grad_target_added(tape, node->x[X]);
    if (weight)
        dw = attn__grad_target_added(tape, node->x[W]);
    attn__hold columns = attn__scratch(tape, (size_t)(rows_of(d) * attn__volume(d->grid.out)) * attn_dtype_size(dtype));
    tape->failed |= !columns.data;
    for (int64_t i = 0; i < d->batch * d->groups && !tape->failed; i++) {
        piece p = piece_of(d, i);
        if (dw.data) {
            unfold(tape, d, dtype, at(node->saved[SAVED_X].data, dtype, p.x), columns.data);
            weight_gradient(tape, d, dtype, dy, dw, p, columns.data);
        }
        if (dx.data)
            input_gradient(tape, d, dtype, dy, dx.data, p, node->saved[SAVED_W].data, columns.data);
    }
    attn__scratch_release(columns);
}

/* The gradient of what the activation was applied to. */
static attn__hold before_activation(attn_tape *tape, const conv_detail *d, const attn__node *node)
{
    attn_tensor *y = node->y;
    if (d->activation == ATTN_IDENTITY)
        return attn__grad_share(y);
    attn__hold dy = attn__grad_reuse(tape, y);
    attn__rows_args args = {
        .x = y->grad->data, .x2 = node->saved[SAVED_Y].data, .y = dy.data, .kind = (int)d->activation};
    if (dy.data)
        attn__rows_run(tape, y->dtype, ATTN__ROWS_ACTIVATE_BACKWARD, &args, y->size, 1);
    return dy;
}

static void bias_gradient(attn_tape *tape, const conv_detail *d, attn__node *node, const void *dy)
{
    attn__target db = attn__grad_target(tape, node->x[B]);
    attn__stacks_args args = {.dy = dy,
                              .dbias = db.data,
                              .batch = d->batch,
                              .channels = d->groups * d->out_channels,
                              .plane = attn__volume(d->grid.out),
                              .add_bias = db.add};
    if (db.data)
        attn__sum_channels(tape->context, node->y->dtype, &args);
}

static void convolve_backward(attn_tape *tape, attn__node *node)
{
    const conv_detail *d = node->detail;
    attn__hold dy = before_activation(tape, d, node);
    if (!dy.data)
        return;
    bool input = attn__grad_wanted(node->x[X]) && !input_gradient_whole(tape, d, node, dy.data);
    bool weight = attn__grad_wanted(node->x[W]) && !weight_gradient_whole(tape, d, node, dy.data);
    tape->failed |= (input || weight) && out_of_memory(tape);
    if ((input || weight) && !tape->failed)
        gradients_by_unfolding(tape, d, node, dy.data, input, weight);
    bias_gradient(tape, d, node, dy.data);
    attn__scratch_release(dy);
}

static bool shape_error(attn_tape *tape, const attn_tensor *x, const attn_tensor *w, const char *why)
{
    char tx[ATTN__SHAPE_TEXT], tw[ATTN__SHAPE_TEXT];
    attn__op_shape_error(tape, "convolve: x %s, w %s: %s", attn__shape_text(x, tx), attn__shape_text(w, tw), why);
    return false;
}

/* Sizes in three spatial axes; false (noted) if something does not fit. */
static bool plan(attn_tape *tape, const attn_tensor *x, const attn_tensor *w, const attn_conv *conv, conv_detail *d)
{
    int n = d->spatial = conv->spatial;
    if (n < 1 || n > 3 || x->rank != n + 2 || w->rank != n + 2)
        return shape_error(tape, x, w, "1 to 3 spatial axes after two others wanted");
    d->batch = x->shape[0];
    d->groups = conv->groups ? conv->groups : 1;
    d->activation = conv->activation;
    d->in_channels = w->shape[1];
    if (d->groups < 0 || x->shape[1] != d->groups * w->shape[1] || w->shape[0] % d->groups != 0)
        return shape_error(tape, x, w, "channels do not fit the groups");
    d->out_channels = w->shape[0] / d->groups;
    d->grid = (attn__window_grid){{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}};
    for (int i = 0; i < n; i++) {
        int axis = 3 - n + i;
        d->grid.in[axis] = x->shape[2 + i];
        d->grid.kernel[axis] = w->shape[2 + i];
        d->grid.stride[axis] = conv->stride[i] ? conv->stride[i] : 1;
        d->grid.padding[axis] = conv->padding[i];
        int64_t room = x->shape[2 + i] + 2 * conv->padding[i] - w->shape[2 + i];
        if (room < 0 || conv->stride[i] < 0 || conv->padding[i] < 0 || w->shape[2 + i] < 1)
            return shape_error(tape, x, w, "the kernel does not fit into the image");
        d->grid.out[axis] = room / d->grid.stride[axis] + 1;
    }
    return true;
}

static bool run_by_unfolding(attn_tape *tape, const conv_detail *d, const attn_tensor *x, const attn_tensor *w,
                             const attn_tensor *b, attn_tensor *y)
{
    int64_t out = attn__volume(d->grid.out), rows = rows_of(d);
    attn__hold columns = attn__scratch(tape, (size_t)(rows * out) * attn_dtype_size(y->dtype));
    bool done = columns.data != NULL;
    for (int64_t i = 0; i < d->batch * d->groups && done; i++) {
        piece p = piece_of(d, i);
        unfold(tape, d, y->dtype, at(x->data, y->dtype, p.x), columns.data);
        done = attn__gemm(tape, &(attn__gemm_args){.dtype = y->dtype,
                                                   .m = d->out_channels,
                                                   .n = out,
                                                   .k = rows,
                                                   .a = at(w->data, y->dtype, p.w),
                                                   .lda = rows,
                                                   .b = columns.data,
                                                   .ldb = out,
                                                   .c = at(y->data, y->dtype, p.y),
                                                   .ldc = out});
    }
    attn__scratch_release(columns);
    attn__stacks_args args = {
        .y = y->data, .bias = b ? b->data : NULL, .batch = d->batch, .channels = w->shape[0], .plane = out};
    if (b && done)
        attn__parallel_range(tape->context->threads, args.channels, 1,
                             attn__stacks_for(x->dtype == ATTN_F64, tape->context->isa)->add_bias, &args);
    return done;
}

static bool run(attn_tape *tape, const conv_detail *d, const attn_tensor *x, const attn_tensor *w, const attn_tensor *b,
                attn_tensor *y)
{
    attn__conv_args args = args_of(d, ATTN__CONV_FORWARD, x->data, w->data, b ? b->data : NULL, y->data);
    if (!by_dnnl(tape, d, x->dtype, &args) && (out_of_memory(tape) || !run_by_unfolding(tape, d, x, w, b, y)))
        return false;
    attn__rows_args act = {.x = y->data, .y = y->data, .kind = (int)d->activation};
    if (d->activation != ATTN_IDENTITY)
        attn__rows_run(tape, y->dtype, ATTN__ROWS_ACTIVATE, &act, y->size, 1);
    return true;
}

/* Where the derivative is computed from what the activation was applied to, that stays, and it is an operation of its
 * own; as one that there is not, for its error. */
static bool goes_alone(attn_activation activation)
{
    return activation < ATTN_IDENTITY || activation > ATTN_SIGMOID || attn__activation_keeps_input((int)activation);
}

attn_tensor *attn_convolve(attn_tape *tape, attn_tensor *x, attn_tensor *w, attn_tensor *b, const attn_conv *conv)
{
    conv_detail d;
    if (goes_alone(conv->activation)) {
        attn_conv plain = *conv;
        plain.activation = ATTN_IDENTITY;
        return attn_activate(tape, attn_convolve(tape, x, w, b, &plain), conv->activation);
    }
    if (!attn__op_accepts(tape, "convolve", b ? 3 : 2, x, w, b) || !plan(tape, x, w, conv, &d))
        return NULL;
    if (b && (b->rank != 1 || b->shape[0] != w->shape[0])) {
        shape_error(tape, x, w, "b has not one element for each output channel");
        return NULL;
    }
    int64_t shape[ATTN_MAX_RANK] = {x->shape[0], w->shape[0]};
    memcpy(shape + 2, d.grid.out + 3 - conv->spatial, (size_t)conv->spatial * sizeof *shape);
    attn_tensor *y = attn__op_result(tape, x->dtype, x->rank, shape), *inputs[INPUTS] = {x, w, b};
    attn__node *node;
    if (!y || !attn__op_record(tape, &node, convolve_backward, y, INPUTS, inputs, SAVED_COUNT, sizeof d) ||
        !run(tape, &d, x, w, b, y))
        return NULL;
    if (node) {
        *(conv_detail *)node->detail = d;
        attn__node_save(node, SAVED_X, x);
        attn__node_save(node, SAVED_W, w);
        if (d.activation != ATTN_IDENTITY)
            attn__node_save(node, SAVED_Y, y);
    }
    return y;
}
