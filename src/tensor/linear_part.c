/* SPDX-License-Identifier: MIT
 * Parts of linear layers into memory that is there. */
#include "tensor/linear_part.h"

#include "tensor/gemm.h"
#include "tensor/op.h"

#include <string.h>

/* Bias and activation are a pass of their own over y, while it is still in a cache where y is a small part. */
static void finish(attn_tape *tape, const attn__linear_part *p, int64_t rows, int64_t out)
{
    size_t element = attn_dtype_size(p->x->dtype);
    attn__rows_args args = {.x = p->b ? (const char *)p->b->data + (size_t)p->row * element : NULL, .y = p->y->data,
                            .n = out, .kind = (int)p->activation};
    if (p->b || p->activation != ATTN_IDENTITY)
        attn__rows_run(tape, p->y->dtype, ATTN__ROWS_BIAS_ACTIVATE, &args, rows, out);
}

bool attn__linear_part_run(attn_tape *tape, const attn__linear_part *p)
{
    if (!p->x || !p->w || !p->y)
        return false;
    int64_t in = p->x->shape[p->x->rank - 1], out = p->y->shape[p->y->rank - 1], ld = p->w->shape[1];
    int64_t rows = attn__row_count(p->x);
    size_t element = attn_dtype_size(p->w->dtype);
    attn__gemm_args args = {.dtype = p->x->dtype, .transpose_b = true, .m = rows, .n = out, .k = in, .a = p->x->data,
                            .lda = in, .b = (const char *)p->w->data + (size_t)(p->row * ld + p->column) * element,
                            .ldb = ld, .c = p->y->data, .ldc = out, .add = p->add};
    if (!attn__gemm(tape, &args))
        return false;
    finish(tape, p, rows, out);
    return true;
}

attn_tensor *attn__linear_rows(attn_tape *tape, attn_tensor *x, const attn_tensor *w, const attn_tensor *b, int64_t row,
                               int64_t out, attn_activation activation)
{
    if (!x || !w)
        return NULL;
    int64_t shape[ATTN_MAX_RANK];
    memcpy(shape, x->shape, sizeof shape);
    shape[x->rank - 1] = out;
    attn__linear_part part = {.x = x, .w = w, .b = b, .row = row, .activation = activation,
                              .y = attn__op_result(tape, x->dtype, x->rank, shape)};
    return attn__linear_part_run(tape, &part) ? part.y : NULL;
}

attn_tensor *attn__part_of(attn_tape *tape, attn_tensor *x, int64_t begin, int64_t end)
{
    int64_t shape[ATTN_MAX_RANK], step = x->shape[0] ? x->size / x->shape[0] : 0;
    memcpy(shape, x->shape, sizeof shape);
    shape[0] = end - begin;
    return attn__op_view(tape, x, begin * step, x->rank, shape);
}
