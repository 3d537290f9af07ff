/* SPDX-License-Identifier: MIT
 *
 * Implements pooling, which is the maximum or the mean over windows.
 */
#include "base/integers.h"
#include "base/parallel.h"
#include "tensor/spatial.h"
#include "tensor/op.h"

#include <string.h>

enum { PLANES_OF_A_THREAD = 8 };

typedef struct pool_detail {
    attn__window_grid grid;
    int64_t planes;
    bool largest;
} pool_detail;

static void run_planes(attn_tape *tape, const pool_detail *d, void (*loop)(void *, int64_t, int64_t),
                       attn__spatial_args *args)
{
    args->grid = d->grid;
    attn__parallel_range(tape->context->threads, d->planes, 1, loop, args);
}

static void pool_backward(attn_tape *tape, attn__node *node)
{
    const pool_detail *d = node->detail;
    attn__target dx = attn__grad_target_added(tape, node->x[0]);
    if (!dx.data)
        return;
    const attn__spatial_loops *loops = attn__spatial_loops_for(node->y->dtype == ATTN_F64);
    attn__spatial_args args = {.x = node->y->grad->data, .y = dx.data, .index = node->saved[0].data};
    run_planes(tape, d, d->largest ? loops->max_backward : loops->avg_backward, &args);
}

static bool plan(attn_tape *tape, const char *op, const attn_tensor *x, int spatial, const int64_t *kernel,
                 const int64_t *stride, const int64_t *padding, pool_detail *d)
{
    char text[ATTN__SHAPE_TEXT];
    if (spatial < 1 || spatial > 3) {
        attn__op_shape_error(tape, "%s: the number of spatial axes is %d; it must be 1 to 3", op, spatial);
        return false;
    }
    bool fits = x->rank == spatial + 2;
    d->grid = (attn__window_grid){{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}};
    for (int i = 0; i < spatial && fits; i++) {
        int axis = 3 - spatial + i;
        int64_t pad = padding ? padding[i] : 0;
        /* The padding must be at most half of a window, so that every window overlaps the input. */
        fits = kernel[i] >= 1 && pad >= 0 && pad <= kernel[i] / 2 && x->shape[2 + i] > 0 &&
               kernel[i] <= x->shape[2 + i] + 2 * pad && (!stride || stride[i] >= 0);
        if (!fits && stride && stride[i] < 0) {
            attn__op_shape_error(tape, "%s: the stride along axis %d is %lld; it must not be negative", op, 2 + i,
                                 (long long)stride[i]);
            return false;
        }
        if (!fits && (pad < 0 || (kernel[i] >= 1 && pad > kernel[i] / 2))) {
            attn__op_shape_error(tape,
                                 "%s: the padding along axis %d is %lld; it must be 0 to %lld, half of the kernel", op,
                                 2 + i, (long long)pad, (long long)(kernel[i] >= 1 ? kernel[i] / 2 : 0));
            return false;
        }
        if (!fits) {
            attn__op_shape_error(tape, "%s: a kernel of %lld with padding %lld does not fit axis %d of x %s", op,
                                 (long long)kernel[i], (long long)pad, 2 + i, attn__shape_text(x, text));
            return false;
        }
        d->grid.in[axis] = x->shape[2 + i];
        d->grid.kernel[axis] = kernel[i];
        d->grid.stride[axis] = stride && stride[i] ? stride[i] : kernel[i];
        d->grid.padding[axis] = pad;
        d->grid.out[axis] = (x->shape[2 + i] + 2 * pad - kernel[i]) / d->grid.stride[axis] + 1;
    }
    if (fits && attn__volume(d->grid.in) <= INT32_MAX) {
        d->planes = x->shape[0] * x->shape[1];
        return true;
    }
    if (fits)
        attn__op_shape_error(tape, "%s: the spatial axes of x %s have more than 2^31 - 1 elements, the limit", op,
                             attn__shape_text(x, text));
    else
        attn__op_shape_error(tape, "%s: x has the shape %s; expected batch, channels and %d spatial axes", op,
                             attn__shape_text(x, text), spatial);
    return false;
}

/* Pools `step` planes at a time. Max pooling writes the index of each window's largest element to `index`, which has
 * room for `step` planes. */
static void pool_planes(attn_tape *tape, const pool_detail *d, const attn_tensor *x, const attn_tensor *y,
                        int32_t *index, int64_t step)
{
    const attn__spatial_loops *loops = attn__spatial_loops_for(x->dtype == ATTN_F64);
    size_t in = (size_t)attn__volume(d->grid.in) * attn_dtype_size(x->dtype);
    size_t out = (size_t)attn__volume(d->grid.out) * attn_dtype_size(x->dtype);
    for (int64_t i = 0; i < d->planes; i += step) {
        pool_detail part = {.grid = d->grid, .planes = attn__min(step, d->planes - i)};
        attn__spatial_args args = {
            .x = (const char *)x->data + (size_t)i * in, .y = (char *)y->data + (size_t)i * out, .index = index};
        run_planes(tape, &part, d->largest ? loops->max_pool : loops->avg_pool, &args);
    }
}

static attn_tensor *pool(attn_tape *tape, const char *op, attn_tensor *x, int spatial, const int64_t *kernel,
                         const int64_t *stride, const int64_t *padding, bool largest)
{
    pool_detail d = {.largest = largest};
    if (!attn__op_accepts(tape, op, 1, x) || !plan(tape, op, x, spatial, kernel, stride, padding, &d))
        return NULL;
    int64_t shape[ATTN_MAX_RANK] = {x->shape[0], x->shape[1]};
    memcpy(shape + 2, d.grid.out + 3 - spatial, (size_t)spatial * sizeof *shape);
    attn_tensor *y = attn__op_result(tape, x->dtype, x->rank, shape);
    attn__node *node;
    if (!y || !attn__op_record(tape, &node, pool_backward, y, 1, &x, 1, sizeof d))
        return NULL;
    attn__hold index = {0};
    /* without a backward pass, the indices of a step of planes are not needed after the step, so all steps use the same
     * memory */
    int64_t few = attn__min(d.planes, (int64_t)PLANES_OF_A_THREAD * tape->context->threads),
            step = node ? d.planes : few;
    if (largest) {
        index = attn__scratch(tape, (size_t)(step * attn__volume(d.grid.out)) * sizeof(int32_t));
        if (!index.data)
            return NULL;
    }
    pool_planes(tape, &d, x, y, index.data, step);
    if (node) {
        *(pool_detail *)node->detail = d;
        attn__node_save_hold(node, 0, index);
    } else {
        attn__scratch_release(index);
    }
    return y;
}

attn_tensor *attn_max_pool(attn_tape *tape, attn_tensor *x, int spatial, const int64_t *kernel, const int64_t *stride,
                           const int64_t *padding)
{
    ATTN__TAPE_CALL(tape->context);
    return pool(tape, "max_pool", x, spatial, kernel, stride, padding, true);
}

attn_tensor *attn_avg_pool(attn_tape *tape, attn_tensor *x, int spatial, const int64_t *kernel, const int64_t *stride)
{
    ATTN__TAPE_CALL(tape->context);
    return pool(tape, "avg_pool", x, spatial, kernel, stride, NULL, false);
}
