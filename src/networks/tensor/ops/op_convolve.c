/* SPDX-License-Identifier: MIT
 *
 * Implements convolution (cross-correlation, as is usual in neural networks) in 1 to 3 dimensions, as a matrix product
 * with the im2col matrix. Blocks of this matrix are gathered when the product needs them (gemm/im2col.h). */
#include "base/context.h"
#include "base/parallel.h"
#include "gemm/im2col.h"
#include "tensor/depthwise.h"
#include "tensor/matrix_product.h"
#include "tensor/spatial.h"
#include "tensor/op.h"

#include <stdio.h>
#include <string.h>

enum { X, W, B, ADDEND, INPUTS };
enum { SAVED_X, SAVED_W, SAVED_Y, SAVED_SCALE, SAVED_COUNT };

typedef struct conv_detail {
    int spatial;
    attn__window_grid grid;
    int64_t batch, groups, in_channels, out_channels; /* in_channels, out_channels: number of channels in one group */
    attn_activation activation;
} conv_detail;

/* The operands of a convolution. All except x and w may be NULL. */
typedef struct convolution {
    attn_tensor *x, *w, *b, *addend;
    const attn_tensor *scale;
    bool in_place; /* true: the result overwrites the addend */
} convolution;

/* Returns the number of rows of the im2col matrix of one group. Each row belongs to one channel and one tap. */
static int64_t rows_of(const conv_detail *d)
{
    return d->in_channels * attn__volume(d->grid.kernel);
}

static void *at(const void *data, attn_dtype dtype, int64_t offset)
{
    return (char *)(uintptr_t)data + offset * (int64_t)attn_dtype_size(dtype);
}

/* Returns the number of input elements of one group in one image. */
static int64_t input_size(const conv_detail *d)
{
    return d->in_channels * attn__volume(d->grid.in);
}

static int64_t output_size(const conv_detail *d)
{
    return d->out_channels * attn__volume(d->grid.out);
}

/* Returns how many positions a window spans along an axis, from its first tap to its last tap. */
static int64_t reach(const attn__window_grid *g, int axis)
{
    return g->dilation[axis] * (g->kernel[axis] - 1) + 1;
}

static bool is_pointwise(const attn__window_grid *g)
{
    bool is = true;
    for (int i = 0; i < 3; i++)
        is = is && g->kernel[i] == 1 && g->stride[i] == 1 && g->padding[i] == 0;
    return is;
}

/* Returns whether the convolution is faster as sums over taps than as a matrix product. */
static bool is_depthwise(const conv_detail *d, attn_dtype dtype)
{
    enum { FEW = 4 };
    bool dense = true;
    for (int i = 0; i < 3; i++)
        dense = dense && d->grid.dilation[i] == 1;
    return dense && dtype == ATTN_F32 && d->in_channels == 1 && d->groups > 1 && d->out_channels <= FEW;
}

static attn__depthwise depthwise_of(const conv_detail *d, const void *x, const void *w)
{
    return (attn__depthwise){
        .grid = d->grid, .batch = d->batch, .groups = d->groups, .out_channels = d->out_channels, .x = x, .w = w};
}

/* Returns the im2col matrix as an operand of a product. The product sums over the matrix's rows (channel, tap) if
 * `rows_are_k` is true, and otherwise over its columns (positions). */
static attn__gemm_operand columns_of(const attn__im2col *s, int64_t positions, bool rows_are_k)
{
    int64_t along = is_pointwise(&s->grid) ? positions : 0;
    attn__gemm_operand y = {.outer = rows_are_k ? 1 : along, .inner = rows_are_k ? along : 1, .batch = s->image};
    if (is_pointwise(&s->grid)) {
        y.data = s->x;
    } else {
        y.gather = attn__im2col_gather;
        y.source = s;
    }
    return y;
}

/* ---------------------------------------------------------------------------------------------- forward */

/* Arguments of the epilogue, which processes one row of Y, that is, one output channel. */
typedef struct epilogue {
    const attn__elementwise_table *rows;
    attn_dtype dtype;
    const void *scale, *bias;    /* one value per channel of the group; NULL: not used */
    const char *addend, *result; /* data of the whole tensors; NULL: not used */
    attn_activation activation;
} epilogue;

static double number(const epilogue *e, const void *data, int64_t row)
{
    return e->dtype == ATTN_F64 ? ((const double *)data)[row] : (double)((const float *)data)[row];
}

static void finish(const void *user, void *y, int64_t row, int64_t column, int64_t n)
{
    const epilogue *e = user;
    (void)column;
    attn__elementwise_args args = {.x = y, .y = y, .s = {1, 0}, .kind = (int)e->activation};
    if (e->scale)
        args.s[0] = number(e, e->scale, row);
    if (e->bias)
        args.s[1] = number(e, e->bias, row);
    if (e->scale || e->bias)
        e->rows->run[ATTN__ELEMENTWISE_AFFINE](&args, 0, n);
    if (e->addend) {
        args.x2 = e->addend + ((const char *)y - e->result);
        e->rows->run[ATTN__ELEMENTWISE_ADD](&args, 0, n);
    }
    if (e->activation != ATTN_ACTIVATION_IDENTITY)
        e->rows->run[ATTN__ELEMENTWISE_ACTIVATE](&args, 0, n);
}

static epilogue epilogue_of(const attn_tape *tape, const conv_detail *d, const convolution *c, const attn_tensor *y,
                            int64_t group)
{
    attn_dtype dtype = y->dtype;
    return (epilogue){.rows = attn__elementwise_for(dtype == ATTN_F64, tape->context->isa),
                      .dtype = dtype,
                      .scale = c->scale ? at(c->scale->data, dtype, group * d->out_channels) : NULL,
                      .bias = c->b ? at(c->b->data, dtype, group * d->out_channels) : NULL,
                      .addend = c->addend && !c->in_place ? c->addend->data : NULL,
                      .result = y->data,
                      .activation = d->activation};
}

/* Computes Y = W columns(X) for each group, where columns(X) is the im2col matrix. The product's batch is the
 * images. */
static bool run(attn_tape *tape, const conv_detail *d, const convolution *c, attn_tensor *y)
{
    const attn_tensor *x = c->x, *w = c->w;
    int64_t positions = attn__volume(d->grid.out), rows = rows_of(d);
    bool done = true;
    if (is_depthwise(d, y->dtype)) {
        epilogue after = epilogue_of(tape, d, c, y, 0);
        attn__depthwise conv = depthwise_of(d, x->data, w->data);
        conv.y = y->data;
        conv.finish = finish;
        conv.user = &after;
        return attn__depthwise_forward(tape, &conv);
    }
    for (int64_t i = 0; i < d->groups && d->batch > 0 && done; i++) {
        attn__im2col columns = {.grid = d->grid,
                                .x = at(x->data, y->dtype, i * input_size(d)),
                                .image = d->groups * input_size(d),
                                .element_size = (int64_t)attn_dtype_size(y->dtype)};
        epilogue after = epilogue_of(tape, d, c, y, i);
        done = attn__gemm(
            tape, &(attn__gemm_problem){.dtype = y->dtype,
                                        .batch = d->batch,
                                        .m = d->out_channels,
                                        .n = positions,
                                        .k = rows,
                                        .a = attn__matrix(at(w->data, y->dtype, i * d->out_channels * rows), rows, 1),
                                        .b = columns_of(&columns, positions, true),
                                        .c = at(y->data, y->dtype, i * output_size(d)),
                                        .ldc = positions,
                                        .c_batch = d->groups * output_size(d),
                                        .add = c->in_place,
                                        .finish = finish,
                                        .user = &after});
    }
    return done;
}

/* --------------------------------------------------------------------------------------------- backward */

/* Computes dw as sums over taps. Sets done[group] for each group for which this was possible. If there is no memory,
 * sets tape->failed and returns a hold without data. */
static attn__hold depthwise_weight_gradient(attn_tape *tape, const conv_detail *d, attn__node *node, const void *dy,
                                            attn__target dw)
{
    attn__hold done = attn__scratch(tape, (size_t)d->groups * sizeof(bool));
    attn__depthwise conv = depthwise_of(d, node->saved[SAVED_X].data, node->saved[SAVED_W].data);
    conv.dy = dy;
    conv.dw = dw;
    tape->failed |= !done.data || !attn__depthwise_weight_gradient(tape, &conv, done.data);
    return done;
}

/* Computes dW (+)= dY columns(X)^T, summed over the images, where columns(X) is the im2col matrix. */
static void weight_gradient(attn_tape *tape, const conv_detail *d, attn__node *node, const void *dy)
{
    attn_tensor *w = node->x[W];
    attn__target dw = attn__grad_target(tape, w);
    int64_t positions = attn__volume(d->grid.out), rows = rows_of(d);
    attn__hold done = {0};
    if (dw.data && is_depthwise(d, w->dtype))
        done = depthwise_weight_gradient(tape, d, node, dy, dw);
    for (int64_t i = 0; i < d->groups && dw.data && !tape->failed; i++) {
        if (done.data && ((const bool *)done.data)[i])
            continue;
        attn__im2col columns = {.grid = d->grid,
                                .x = at(node->saved[SAVED_X].data, w->dtype, i * input_size(d)),
                                .image = d->groups * input_size(d),
                                .element_size = (int64_t)attn_dtype_size(w->dtype)};
        tape->failed |= !attn__gemm(tape, &(attn__gemm_problem){.dtype = w->dtype,
                                                                .batch = d->batch,
                                                                .m = d->out_channels,
                                                                .n = rows,
                                                                .k = d->batch > 0 ? positions : 0,
                                                                .a = {at(dy, w->dtype, i * output_size(d)), positions,
                                                                      1, .batch = d->groups * output_size(d)},
                                                                .b = columns_of(&columns, positions, false),
                                                                .c = at(dw.data, w->dtype, i * d->out_channels * rows),
                                                                .ldc = rows,
                                                                .add = dw.add});
    }
    attn__scratch_release(done);
}

/* The fast method for dx multiplies weights by zeros of the border. With an infinite or NaN weight, such a product
 * would be NaN instead of 0. */
static bool is_finite(const attn_tensor *w, const void *data)
{
    uint64_t most = 0;
    for (int64_t i = 0; i < w->size; i++) {
        uint64_t bits = w->dtype == ATTN_F64 ? ((const uint64_t *)data)[i] << 1
                                             : (uint64_t)(((const uint32_t *)data)[i] & 0x7fffffff);
        most = bits > most ? bits : most;
    }
    return most < (w->dtype == ATTN_F64 ? (uint64_t)0x7ff << 53 : (uint64_t)0xff << 23);
}

/* Returns whether the gradient of the input can be computed as a convolution. It can if the stride is 1 and the padding
 * is less than a window. dY is then convolved with the taps in reverse order, and input and output channels are
 * exchanged. */
static bool has_reverse(const attn__window_grid *g)
{
    bool has = true;
    for (int i = 0; i < 3; i++)
        has = has && g->stride[i] == 1 && g->padding[i] < reach(g, i);
    return has;
}

static attn__window_grid reverse_of(const attn__window_grid *g)
{
    attn__window_grid r = *g;
    for (int i = 0; i < 3; i++) {
        r.in[i] = g->out[i];
        r.out[i] = g->in[i];
        r.padding[i] = reach(g, i) - 1 - g->padding[i];
    }
    return r;
}

/* Copies the weights [out, in, taps] of one group to [in, out, taps], with the taps in reverse order. */
static void reverse_weights(attn_tape *tape, const conv_detail *d, attn_dtype dtype, const void *w, void *to)
{
    int64_t taps = attn__volume(d->grid.kernel);
    attn__elementwise_args args = {.x = at(w, dtype, taps - 1),
                                   .y = to,
                                   .s = {1},
                                   .rank = 3,
                                   .shape = {d->in_channels, d->out_channels, taps},
                                   .stride_x = {taps, d->in_channels * taps, -1},
                                   .stride_y = {d->out_channels * taps, taps, 1}};
    attn__elementwise_run(tape, dtype, ATTN__ELEMENTWISE_STRIDED, &args, d->in_channels * d->out_channels, taps);
}

static void input_gradient_reverse(attn_tape *tape, const conv_detail *d, attn__node *node, const void *dy)
{
    attn_dtype dtype = node->y->dtype;
    int64_t positions = attn__volume(d->grid.in), rows = d->out_channels * attn__volume(d->grid.kernel);
    attn__hold weights = attn__scratch(tape, (size_t)(d->in_channels * rows) * attn_dtype_size(dtype));
    attn__target dx = attn__grad_target(tape, node->x[X]);
    tape->failed |= !weights.data;
    for (int64_t i = 0; i < d->groups && d->batch > 0 && dx.data && !tape->failed; i++) {
        attn__im2col columns = {.grid = reverse_of(&d->grid),
                                .x = at(dy, dtype, i * output_size(d)),
                                .image = d->groups * output_size(d),
                                .element_size = (int64_t)attn_dtype_size(dtype)};
        reverse_weights(tape, d, dtype, at(node->saved[SAVED_W].data, dtype, i * d->in_channels * rows), weights.data);
        tape->failed |= !attn__gemm(tape, &(attn__gemm_problem){.dtype = dtype,
                                                                .batch = d->batch,
                                                                .m = d->in_channels,
                                                                .n = positions,
                                                                .k = rows,
                                                                .a = attn__matrix(weights.data, rows, 1),
                                                                .b = columns_of(&columns, positions, true),
                                                                .c = at(dx.data, dtype, i * input_size(d)),
                                                                .ldc = positions,
                                                                .c_batch = d->groups * input_size(d),
                                                                .add = dx.add});
    }
    attn__scratch_release(weights);
}

/* Computes the gradient of the input if it cannot be computed as a convolution. W^T dY is the gradient of the im2col
 * matrix. Each of its elements is added to the input position from which im2col reads. Images are processed one by
 * one. */
static void input_gradient_fold(attn_tape *tape, const conv_detail *d, attn__node *node, const void *dy)
{
    attn_dtype dtype = node->y->dtype;
    int64_t positions = attn__volume(d->grid.out), rows = rows_of(d);
    attn__target dx = attn__grad_target_added(tape, node->x[X]);
    attn__hold columns = attn__scratch(tape, (size_t)(rows * positions) * attn_dtype_size(dtype));
    tape->failed |= !columns.data;
    for (int64_t i = 0; i < d->batch * d->groups && dx.data && !tape->failed; i++) {
        const void *w = at(node->saved[SAVED_W].data, dtype, i % d->groups * d->out_channels * rows);
        tape->failed |=
            !attn__gemm(tape, &(attn__gemm_problem){.dtype = dtype,
                                                    .m = rows,
                                                    .n = positions,
                                                    .k = d->out_channels,
                                                    .a = attn__matrix(w, 1, rows),
                                                    .b = attn__matrix(at(dy, dtype, i * output_size(d)), 1, positions),
                                                    .c = columns.data,
                                                    .ldc = positions});
        attn__spatial_args args = {.grid = d->grid, .x = columns.data, .y = at(dx.data, dtype, i * input_size(d))};
        attn__parallel_range(tape->context->threads, d->in_channels, 1,
                             attn__spatial_loops_for(dtype == ATTN_F64)->fold, &args);
    }
    attn__scratch_release(columns);
}

static void input_gradient_depthwise(attn_tape *tape, const conv_detail *d, attn__node *node, const void *dy)
{
    attn__depthwise conv = depthwise_of(d, NULL, node->saved[SAVED_W].data);
    conv.dy = dy;
    conv.dx = attn__grad_target(tape, node->x[X]);
    tape->failed |= conv.dx.data && !attn__depthwise_input_gradient(tape, &conv);
}

static void input_gradient(attn_tape *tape, const conv_detail *d, attn__node *node, const void *dy)
{
    bool finite = is_finite(node->x[W], node->saved[SAVED_W].data);
    if (finite && is_depthwise(d, node->y->dtype))
        input_gradient_depthwise(tape, d, node, dy);
    else if (finite && has_reverse(&d->grid))
        input_gradient_reverse(tape, d, node, dy);
    else
        input_gradient_fold(tape, d, node, dy);
}

static attn__hold before_activation(attn_tape *tape, const conv_detail *d, const attn__node *node)
{
    attn_tensor *y = node->y;
    if (d->activation == ATTN_ACTIVATION_IDENTITY)
        return attn__grad_share(y);
    attn__hold dy = attn__grad_reuse(tape, y);
    attn__elementwise_args args = {
        .x = y->grad->data, .x2 = node->saved[SAVED_Y].data, .y = dy.data, .kind = (int)d->activation};
    if (dy.data)
        attn__elementwise_run(tape, y->dtype, ATTN__ELEMENTWISE_ACTIVATE_BACKWARD, &args, y->size, 1);
    return dy;
}

typedef struct scale_job {
    epilogue rows;
    const void *x;
    void *y;
    int64_t channels, positions;
} scale_job;

static void scale_some(void *user, int64_t begin, int64_t end)
{
    const scale_job *j = user;
    for (int64_t i = begin; i < end; i++) {
        attn__elementwise_args args = {.x = at(j->x, j->rows.dtype, i * j->positions),
                                       .y = at(j->y, j->rows.dtype, i * j->positions),
                                       .s = {number(&j->rows, j->rows.scale, i % j->channels), 0}};
        j->rows.rows->run[ATTN__ELEMENTWISE_AFFINE](&args, 0, j->positions);
    }
}

/* Returns dY of each channel times the channel's scale, which is the gradient before scaling. Releases dy. */
static attn__hold before_scale(attn_tape *tape, const conv_detail *d, const attn__node *node, attn__hold dy)
{
    const attn_tensor *y = node->y;
    if (!node->saved[SAVED_SCALE].data || !dy.data)
        return dy;
    attn__hold scaled = attn__scratch(tape, (size_t)y->size * attn_dtype_size(y->dtype));
    scale_job job = {.rows = {.rows = attn__elementwise_for(y->dtype == ATTN_F64, tape->context->isa),
                              .dtype = y->dtype,
                              .scale = node->saved[SAVED_SCALE].data},
                     .x = dy.data,
                     .y = scaled.data,
                     .channels = d->groups * d->out_channels,
                     .positions = attn__volume(d->grid.out)};
    tape->failed |= !scaled.data;
    if (scaled.data)
        attn__parallel_range(tape->context->threads, d->batch * job.channels, 1, scale_some, &job);
    attn__scratch_release(dy);
    return scaled;
}

static void bias_gradient(attn_tape *tape, const conv_detail *d, attn__node *node, const void *dy)
{
    attn__target db = attn__grad_target(tape, node->x[B]);
    attn__batch_norm_args args = {.dy = dy,
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
    bias_gradient(tape, d, node, dy.data);
    if (attn__grad_wanted(node->x[ADDEND])) {
        attn__storage_ref(dy.storage);
        attn__grad_give(tape, node->x[ADDEND], dy);
    }
    dy = before_scale(tape, d, node, dy);
    if (dy.data && attn__grad_wanted(node->x[X]))
        input_gradient(tape, d, node, dy.data);
    if (dy.data && attn__grad_wanted(node->x[W]))
        weight_gradient(tape, d, node, dy.data);
    attn__scratch_release(dy);
}

static bool shape_error(attn_tape *tape, const attn_tensor *x, const attn_tensor *w, const char *why)
{
    char tx[ATTN__SHAPE_TEXT], tw[ATTN__SHAPE_TEXT];
    attn__op_shape_error(tape, "convolve: x %s, w %s: %s", attn__shape_text(x, tx), attn__shape_text(w, tw), why);
    return false;
}

/* Checks stride, padding, dilation and kernel of the i-th axis of the convolution. */
static bool numbers_fit(attn_tape *tape, const attn_tensor *x, const attn_tensor *w, const attn_conv *conv, int i)
{
    const struct {
        const char *name;
        int64_t value, least, most;
    } numbers[] = {{"the stride", conv->stride[i], 0, INT64_MAX},
                   {"the padding", conv->padding[i], 0, INT64_MAX},
                   {"the dilation", conv->dilation[i], 0, INT32_MAX},
                   {"the length of the kernel", w->shape[2 + i], 1, INT32_MAX}};
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
        char why[160];
        if (numbers[k].value >= numbers[k].least && numbers[k].value <= numbers[k].most)
            continue;
        snprintf(why, sizeof why,
                 numbers[k].most == INT32_MAX ? "%s along axis %d is %lld; it must be %lld to 2^31 - 1"
                                              : "%s along axis %d is %lld; it must be at least %lld",
                 numbers[k].name, 2 + i, (long long)numbers[k].value, (long long)numbers[k].least);
        return shape_error(tape, x, w, why);
    }
    return true;
}

/* Computes all sizes, with three spatial axes. Returns false and records an error if the shapes or options do not
 * fit. */
static bool plan(attn_tape *tape, const attn_tensor *x, const attn_tensor *w, const attn_conv *conv, conv_detail *d)
{
    int n = d->spatial = conv->spatial;
    char why[160];
    if (n < 1 || n > 3 || x->rank != n + 2 || w->rank != n + 2) {
        snprintf(why, sizeof why,
                 n < 1 || n > 3 ? "a convolution over %d axes is requested; 1 to 3 are supported"
                                : "x and w must have 2 axes and, after these, the %d axes of the convolution",
                 n);
        return shape_error(tape, x, w, why);
    }
    d->batch = x->shape[0];
    d->groups = conv->groups ? conv->groups : 1;
    d->activation = conv->activation;
    d->in_channels = w->shape[1];
    if (d->groups < 0 || x->shape[1] != d->groups * w->shape[1] || w->shape[0] % d->groups != 0) {
        snprintf(why, sizeof why,
                 d->groups < 0                            ? "there are %lld groups; at least 1 is needed"
                 : x->shape[1] != d->groups * w->shape[1] ? "axis 1 of x must be %lld groups times axis 1 of w"
                                                          : "%lld groups must divide axis 0 of w",
                 (long long)d->groups);
        return shape_error(tape, x, w, why);
    }
    d->out_channels = w->shape[0] / d->groups;
    d->grid = (attn__window_grid){{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}};
    for (int i = 0; i < n; i++) {
        int axis = 3 - n + i;
        d->grid.in[axis] = x->shape[2 + i];
        d->grid.kernel[axis] = w->shape[2 + i];
        d->grid.stride[axis] = conv->stride[i] ? conv->stride[i] : 1;
        d->grid.padding[axis] = conv->padding[i];
        d->grid.dilation[axis] = conv->dilation[i] ? conv->dilation[i] : 1;
        if (!numbers_fit(tape, x, w, conv, i))
            return false;
        int64_t room = x->shape[2 + i] + 2 * conv->padding[i] - reach(&d->grid, axis);
        if (room < 0) {
            snprintf(why, sizeof why, "the kernel with padding %lld and dilation %lld does not fit axis %d of x",
                     (long long)conv->padding[i], (long long)d->grid.dilation[axis], 2 + i);
            return shape_error(tape, x, w, why);
        }
        d->grid.out[axis] = room / d->grid.stride[axis] + 1;
    }
    return true;
}

/* Returns whether the activation must run as an operation of its own. It must if its derivative is computed from its
 * input, because the input must then be kept, and if it is unknown, because that operation reports the error. */
static bool goes_alone(attn_activation activation)
{
    return !attn__activation_exists((int)activation) || attn__activation_keeps_input((int)activation);
}

static bool is_of_channels(attn_tape *tape, const convolution *c, const char *name, const attn_tensor *vector)
{
    char why[ATTN__SHAPE_TEXT + 100], found[ATTN__SHAPE_TEXT];
    if (!vector || (vector->rank == 1 && vector->shape[0] == c->w->shape[0]))
        return true;
    snprintf(why, sizeof why, "%s has the shape %s; expected [%lld], one element for each output channel", name,
             attn__shape_text(vector, found), (long long)c->w->shape[0]);
    return shape_error(tape, c->x, c->w, why);
}

static attn_tensor *convolve(attn_tape *tape, const convolution *c, const attn_conv *conv)
{
    conv_detail d;
    attn_tensor *x = c->x, *w = c->w, *b = c->b, *addend = c->addend;
    if (goes_alone(conv->activation)) {
        attn_conv plain = *conv;
        plain.activation = ATTN_ACTIVATION_IDENTITY;
        return attn_activate(tape, convolve(tape, c, &plain), conv->activation);
    }
    if (!attn__op_accepts(tape, "convolve", b ? 3 : 2, x, w, b) || !plan(tape, x, w, conv, &d) ||
        !is_of_channels(tape, c, "b", b) || !is_of_channels(tape, c, "scale", c->scale))
        return NULL;
    int64_t shape[ATTN_MAX_RANK] = {x->shape[0], w->shape[0]};
    memcpy(shape + 2, d.grid.out + 3 - conv->spatial, (size_t)conv->spatial * sizeof *shape);
    if (addend && (!attn__op_accepts(tape, "convolve", 2, x, addend) || addend->rank != x->rank ||
                   memcmp(addend->shape, shape, (size_t)x->rank * sizeof *shape) != 0)) {
        shape_error(tape, x, w, "the addend must have the shape of the result");
        return NULL;
    }
    attn_tensor *y =
        c->in_place ? attn__op_view(tape, addend, 0, x->rank, shape) : attn__op_result(tape, x->dtype, x->rank, shape);
    attn_tensor *inputs[INPUTS] = {x, w, b, addend};
    attn__node *node;
    if (!y || !attn__op_record(tape, &node, convolve_backward, y, INPUTS, inputs, SAVED_COUNT, sizeof d) ||
        !run(tape, &d, c, y))
        return NULL;
    if (node) {
        *(conv_detail *)node->detail = d;
        attn__node_save(node, SAVED_X, x);
        attn__node_save(node, SAVED_W, w);
        if (c->scale)
            attn__node_save(node, SAVED_SCALE, c->scale);
        if (d.activation != ATTN_ACTIVATION_IDENTITY)
            attn__node_save(node, SAVED_Y, y);
    }
    return y;
}

attn_tensor *attn_convolve(attn_tape *tape, attn_tensor *x, attn_tensor *w, attn_tensor *b, const attn_conv *conv)
{
    ATTN__TAPE_CALL(tape->context);
    return convolve(tape, &(convolution){.x = x, .w = w, .b = b}, conv);
}

attn_tensor *attn_convolve_scaled(attn_tape *tape, attn_tensor *x, attn_tensor *w, attn_tensor *scale,
                                  attn_tensor *shift, attn_tensor *addend, const attn_conv *conv)
{
    ATTN__TAPE_CALL(tape->context);
    convolution c = {.x = x, .w = w, .b = shift, .addend = addend, .scale = scale};
    if (!w || !scale || !shift)
        return NULL;
    if (addend && !tape->options.record && conv->groups <= 1) { /* the scaled product is added to the addend in place */
        c.w = attn_mul(tape, w, attn_reshape(tape, scale, w->rank, (int64_t[]){-1, 1, 1, 1, 1}));
        c.scale = NULL;
        c.in_place = true;
    }
    return convolve(tape, &c, conv);
}
