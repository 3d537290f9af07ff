/* SPDX-License-Identifier: MIT
 *
 * Resizes an axis by interpolation. Every new position is a weighted sum of at most four old positions. Linear and
 * cubic interpolation are separable, so an image is resized along one axis and then along the other. */
#include "base/parallel.h"
#include "tensor/op.h"

#include <math.h>
#include <string.h>

enum { TAPS = 4 };

/* The old positions from which one new position is computed, and their weights. Old positions beyond an end are
 * replaced by the position at this end. */
typedef struct resize_tap {
    int64_t index[TAPS];
    double weight[TAPS];
} resize_tap;

typedef struct resize_job {
    int64_t outer, in, out, inner;
    const resize_tap *taps;
    const void *from;
    void *to;
    bool is_double;
} resize_job;

typedef struct resize_detail {
    resize_job job; /* arguments of the loop, without the addresses of the data */
    resize_tap taps[];
} resize_detail;

/* Computes the weights of Keys' cubic convolution (1981) with a = -0.75, the constant of PyTorch and OpenCV. */
static void cubic_weights(double t, double weight[TAPS])
{
    const double a = -0.75;
    for (int k = 0; k < TAPS; k++) {
        double d = fabs(t + 1 - k);
        weight[k] = d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1 : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
    }
}

/* Returns the taps of new position i. Its coordinate in the input is (i + 1/2) in/out - 1/2. This aligns the outer
 * edges of the first and the last pixel, not their centres. */
static resize_tap tap_at(int64_t i, int64_t in, int64_t out, attn_interpolation kind)
{
    resize_tap tap = {.weight = {0}};
    double at = ((double)i + 0.5) * (double)in / (double)out - 0.5, below = floor(at), t = at - below;
    if (kind == ATTN_INTERPOLATE_CUBIC)
        cubic_weights(t, tap.weight);
    else
        tap.weight[1] = 1 - t, tap.weight[2] = t;
    for (int k = 0; k < TAPS; k++) {
        int64_t index = (int64_t)below + k - 1;
        tap.index[k] = index < 0 ? 0 : index >= in ? in - 1 : index;
    }
    return tap;
}

/* A row of elements: the index of its first element, and the step from one element to the next. */
typedef struct numbers {
    int64_t at, step;
} numbers;

static void add_scaled(const resize_job *job, int64_t n, numbers to, numbers from, double weight)
{
    if (job->is_double) {
        double *y = (double *)job->to + to.at;
        const double *x = (const double *)job->from + from.at;
        for (int64_t i = 0; i < n; i++)
            y[i * to.step] += weight * x[i * from.step];
    } else {
        float *y = (float *)job->to + to.at, w = (float)weight;
        const float *x = (const float *)job->from + from.at;
        for (int64_t i = 0; i < n; i++)
            y[i * to.step] += w * x[i * from.step];
    }
}

/* Resizes outer indices [first, first + n). The forward pass adds to y, which must be zero before. The backward pass
 * adds y's gradient to x's gradient. The inner loop runs over the axes after the resized axis, or over the outer
 * indices if the resized axis is the last one. */
static void resize(const resize_job *job, int64_t first, int64_t n, bool backward)
{
    bool last = job->inner == 1;
    int64_t in_row = job->in * job->inner, out_row = job->out * job->inner;
    for (int64_t row = 0; row < job->out; row++)
        for (int k = 0; k < TAPS; k++) {
            double weight = job->taps[row].weight[k];
            numbers x = {first * in_row + job->taps[row].index[k] * job->inner, last ? in_row : 1};
            numbers y = {first * out_row + row * job->inner, last ? out_row : 1};
            if (weight != 0)
                add_scaled(job, last ? n : job->inner, backward ? x : y, backward ? y : x, weight);
        }
}

static void resize_some(const resize_job *job, int64_t begin, int64_t end, bool backward)
{
    enum { ROWS = 32 }; /* rows that are resized together, so that they stay in the L1 cache */
    int64_t each = job->inner == 1 ? ROWS : 1;
    for (int64_t first = begin; first < end; first += each)
        resize(job, first, end - first < each ? end - first : each, backward);
}

static void spread(void *user, int64_t begin, int64_t end)
{
    resize_some(user, begin, end, false);
}

static void gather(void *user, int64_t begin, int64_t end)
{
    resize_some(user, begin, end, true);
}

static void resize_backward(attn_tape *tape, attn__node *node)
{
    resize_detail *detail = node->detail;
    attn__target dx = attn__grad_target_added(tape, node->x[0]);
    if (!dx.data)
        return;
    resize_job job = detail->job;
    job.taps = detail->taps;
    job.from = node->y->grad->data;
    job.to = dx.data;
    attn__parallel_range(tape->context->threads, job.outer, 1, gather, &job);
}

static resize_job sizes_of(const attn_tensor *x, int axis, int64_t n)
{
    resize_job job = {.outer = 1, .in = x->shape[axis], .out = n, .inner = 1, .is_double = x->dtype == ATTN_F64};
    for (int i = 0; i < x->rank; i++) {
        job.outer *= i < axis ? x->shape[i] : 1;
        job.inner *= i > axis ? x->shape[i] : 1;
    }
    return job;
}

attn_tensor *attn_interpolate(attn_tape *tape, attn_tensor *x, int axis, int64_t n, attn_interpolation kind)
{
    ATTN__TAPE_CALL(tape->context);
    if (!attn__op_accepts(tape, "resize", 1, x))
        return NULL;
    axis = attn__op_axis(tape, "resize", x, axis);
    if (axis < 0 || attn__check_choice(tape->context, "the kind of interpolation", (int)kind, ATTN_INTERPOLATE_CUBIC))
        return NULL;
    if (x->shape[axis] < 1)
        return attn__op_shape_error(tape, "resize: axis %d has length 0; only longer axes can be resized", axis);
    if (n < 1 || n > (int64_t)1 << 32)
        return attn__op_shape_error(tape, "resize: axis %d cannot get the length %lld; it must be 1 to 2^32", axis,
                                    (long long)n);
    if (n == x->shape[axis]) /* same length, so y = x */
        return x;
    int64_t shape[ATTN_MAX_RANK];
    memcpy(shape, x->shape, sizeof shape);
    shape[axis] = n;
    size_t size = sizeof(resize_detail) + (size_t)n * sizeof(resize_tap);
    attn_tensor *y = attn__op_result(tape, x->dtype, x->rank, shape);
    resize_detail *detail = y ? attn__tape_take(tape, size) : NULL;
    attn__node *node;
    if (!detail || !attn__op_record(tape, &node, resize_backward, y, 1, &x, 0, 0))
        return NULL;
    detail->job = sizes_of(x, axis, n);
    for (int64_t i = 0; i < n; i++)
        detail->taps[i] = tap_at(i, x->shape[axis], n, kind);
    if (node)
        node->detail = detail;
    resize_job job = detail->job;
    job.taps = detail->taps;
    job.from = x->data;
    job.to = memset(y->data, 0, attn__tensor_bytes(y));
    attn__parallel_range(tape->context->threads, job.outer, 1, spread, &job);
    return y;
}
