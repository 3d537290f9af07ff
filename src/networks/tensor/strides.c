/* SPDX-License-Identifier: MIT */
#include "tensor/strides.h"

#include <string.h>

void attn__contiguous(int rank, const int64_t *shape, int64_t *stride)
{
    int64_t step = 1;
    for (int i = rank - 1; i >= 0; i--) {
        stride[i] = step;
        step *= shape[i];
    }
}

static bool merges(const int64_t *stride, int outer, int inner, int64_t length)
{
    return stride[outer] == stride[inner] * length;
}

/* Moves axis `from` in the shortened list of axes to position `to`. */
static void keep_axis(attn__elementwise_args *a, int from, int to)
{
    a->shape[to] = a->shape[from];
    a->stride_x[to] = a->stride_x[from];
    a->stride_x2[to] = a->stride_x2[from];
    a->stride_y[to] = a->stride_y[from];
}

static void simplify(attn__elementwise_args *a)
{
    int kept = 0;
    for (int i = 0; i < a->rank; i++) {
        if (a->shape[i] == 1)
            continue;
        int64_t n = a->shape[i];
        if (kept > 0 && merges(a->stride_x, kept - 1, i, n) && merges(a->stride_x2, kept - 1, i, n) &&
            merges(a->stride_y, kept - 1, i, n)) {
            int64_t outer = a->shape[kept - 1];
            keep_axis(a, i, kept - 1);
            a->shape[kept - 1] = outer * n;
        } else {
            keep_axis(a, i, kept++);
        }
    }
    if (kept == 0) {
        a->shape[0] = 1;
        a->stride_x[0] = a->stride_x2[0] = a->stride_y[0] = 1;
        kept = 1;
    }
    a->rank = kept;
}

void attn__strided_run(const attn_tape *tape, attn_dtype dtype, attn__elementwise_kernel kernel,
                       attn__elementwise_args args)
{
    for (int i = 0; i < args.rank; i++)
        if (args.shape[i] == 0)
            return;
    simplify(&args);
    int64_t rows = 1, n = args.shape[args.rank - 1];
    for (int i = 0; i < args.rank - 1; i++)
        rows *= args.shape[i];
    attn__elementwise_run(tape, dtype, kernel, &args, args.rank == 1 ? n : rows, args.rank == 1 ? 1 : n);
}

static bool stretched(const attn_tensor *y, const attn_tensor *x, int axis)
{
    int own = axis - (y->rank - x->rank);
    return y->shape[axis] != 1 && (own < 0 || x->shape[own] == 1);
}

attn__hold attn__sum_to(attn_tape *tape, attn__hold share, const attn_tensor *y, const attn_tensor *x)
{
    int64_t outer = 1;
    for (int axis = 0; axis < y->rank && share.data;) {
        if (!stretched(y, x, axis)) {
            outer *= y->shape[axis++];
            continue;
        }
        int64_t rows = 1, inner = 1;
        for (; axis < y->rank && (stretched(y, x, axis) || y->shape[axis] == 1); axis++)
            rows *= y->shape[axis];
        for (int i = axis; i < y->rank; i++)
            inner *= y->shape[i];
        attn__hold sum = attn__scratch(tape, (size_t)(outer * inner) * attn_dtype_size(x->dtype));
        if (sum.data) {
            attn__elementwise_args args = {.x = share.data, .y = sum.data, .n = inner, .rows = rows, .s = {1}};
            attn__elementwise_run(tape, x->dtype, ATTN__ELEMENTWISE_REDUCE, &args, outer * inner, rows);
        }
        tape->failed |= !sum.data;
        attn__scratch_release(share);
        share = sum;
    }
    return share;
}
