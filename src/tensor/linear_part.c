/* SPDX-License-Identifier: MIT
 * Parts of linear layers into memory that is there. */
#include "tensor/linear_part.h"

#include "base/parallel.h"
#include "kernels/backward/backward.h"
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

/* In one pass, f32 or bf16. */
static bool fused(attn_tape *tape, const attn__linear_part *p)
{
    int64_t ld = p->w->shape[1];
    attn__fused_args args = {.in = p->x->dtype, .out = p->y->dtype, .m = attn__row_count(p->x),
                             .n = p->y->shape[p->y->rank - 1], .k = p->x->shape[p->x->rank - 1], .a = p->x->data,
                             .b = (const char *)p->w->data + (size_t)(p->row * ld + p->column) * attn_dtype_size(p->w->dtype),
                             .ldb = ld, .bias = p->b ? (const float *)p->b->data + p->row : NULL,
                             .gelu = p->activation == ATTN_GELU_ERF, .add = p->add, .c = p->y->data};
    return args.m > 0 && args.n > 0 && args.k > 0 && attn__gemm_fused(tape, &args);
}

static bool in_steps(attn_tape *tape, const attn__linear_part *p)
{
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

/* Few rows are quicker by the other way, which has a kernel for them. */
bool attn__linear_part_run(attn_tape *tape, const attn__linear_part *part)
{
    enum { FEW = 64 };
    attn__linear_part p = *part;
    if (!p.x || !p.w || !p.y)
        return false;
    if (p.x->dtype != ATTN_BF16)
        return (p.x->dtype == ATTN_F32 && attn__row_count(p.x) > FEW && fused(tape, &p)) || in_steps(tape, &p);
    attn_scope_begin(tape);
    p.w = p.w->dtype == ATTN_BF16 ? p.w : attn__rounded(tape, p.w);
    bool done = p.w && fused(tape, &p);
    attn_scope_end(tape, NULL);
    if (!done)
        attn__fail(tape->context, ATTN_UNSUPPORTED, "products in bf16 need oneDNN and a machine that it has them for");
    return done;
}

typedef struct rounding {
    const attn__backward_kernel *kernel;
    const float *from;
    uint16_t *to;
} rounding;

static void round_range(void *user, int64_t begin, int64_t end)
{
    const rounding *r = user;
    r->kernel->put_bf16(r->to + begin, r->from + begin, end - begin, 1, false);
}

attn_tensor *attn__rounded(attn_tape *tape, const attn_tensor *x)
{
    enum { GRAIN = 16384 };
    attn_tensor *y = x ? attn__op_result(tape, ATTN_BF16, x->rank, x->shape) : NULL;
    if (!y)
        return NULL;
    rounding r = {attn__backward_for(tape->context->isa), x->data, y->data};
    attn__parallel_range(tape->context->threads, x->size, GRAIN, round_range, &r);
    return y;
}

attn_tensor *attn__linear_rows(attn_tape *tape, attn_tensor *x, const attn_tensor *w, const attn_tensor *b, int64_t row,
                               int64_t out, attn_activation activation, attn_dtype dtype)
{
    if (!x || !w)
        return NULL;
    int64_t shape[ATTN_MAX_RANK];
    memcpy(shape, x->shape, sizeof shape);
    shape[x->rank - 1] = out;
    attn__linear_part part = {.x = x, .w = w, .b = b, .row = row, .activation = activation,
                              .y = attn__op_result(tape, dtype, x->rank, shape)};
    return attn__linear_part_run(tape, &part) ? part.y : NULL;
}

attn_tensor *attn__part_of(attn_tape *tape, attn_tensor *x, int64_t begin, int64_t end)
{
    int64_t shape[ATTN_MAX_RANK], step = x->shape[0] ? x->size / x->shape[0] : 0;
    memcpy(shape, x->shape, sizeof shape);
    shape[0] = end - begin;
    return attn__op_view(tape, x, begin * step, x->rank, shape);
}
