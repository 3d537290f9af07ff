/* SPDX-License-Identifier: MIT
 * Parts of linear layers into memory that is there. */
#include "tensor/linear_part.h"

#include "base/parallel.h"
#include "kernels/backward/backward.h"
#include "tensor/gemm.h"
#include "tensor/op.h"

#include <string.h>

/* The part of w that is meant. */
static const char *weights_of(const attn__linear_part *p)
{
    return (const char *)p->w->data + (size_t)(p->row * p->w->shape[1] + p->column) * attn_dtype_size(p->w->dtype);
}

/* In one pass, f32 or bf16. */
static attn_status fused(attn_tape *tape, const attn__linear_part *p)
{
    attn__fused_args args = {.in = p->x->dtype,
                             .out = p->y->dtype,
                             .m = attn__row_count(p->x),
                             .n = p->y->shape[p->y->rank - 1],
                             .k = p->x->shape[p->x->rank - 1],
                             .a = p->x->data,
                             .b = (const float *)(const void *)weights_of(p),
                             .ldb = p->w->shape[1],
                             .packed = p->packed,
                             .bias = p->b ? (const float *)p->b->data + p->row : NULL,
                             .gelu = p->activation == ATTN_GELU_ERF,
                             .add = p->add,
                             .c = p->y->data};
    bool known = p->activation == ATTN_IDENTITY || p->activation == ATTN_GELU_ERF;
    return known && args.m > 0 && args.n > 0 && args.k > 0 ? attn__gemm_fused(tape, &args) : ATTN_UNSUPPORTED;
}

static bool in_steps(attn_tape *tape, const attn__linear_part *p)
{
    int64_t in = p->x->shape[p->x->rank - 1], out = p->y->shape[p->y->rank - 1];
    size_t element = attn_dtype_size(p->w->dtype);
    attn__gemm_args args = {.dtype = p->x->dtype,
                            .transpose_b = true,
                            .m = attn__row_count(p->x),
                            .n = out,
                            .k = in,
                            .a = p->x->data,
                            .lda = in,
                            .b = weights_of(p),
                            .ldb = p->w->shape[1],
                            .c = p->y->data,
                            .ldc = out,
                            .add = p->add,
                            .bias = p->b ? (const char *)p->b->data + (size_t)p->row * element : NULL,
                            .activation = p->activation};
    return attn__gemm(tape, &args);
}

/* attn__gemm packs by itself where that pays. */
bool attn__linear_part_run(attn_tape *tape, const attn__linear_part *p)
{
    if (!p->x || !p->w || !p->y)
        return false;
    bool bf16 = p->x->dtype == ATTN_BF16, packed = p->packed && p->packed->hold.data;
    attn_status status = p->w->dtype == ATTN_F32 && (bf16 || packed) ? fused(tape, p) : ATTN_UNSUPPORTED;
    if (status != ATTN_UNSUPPORTED)
        return status == ATTN_OK;
    if (!bf16)
        return in_steps(tape, p);
    attn__fail(tape->context, ATTN_UNSUPPORTED, "products in bf16 need oneDNN and a machine that it has them for");
    return false;
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

attn_tensor *attn__linear_new(attn_tape *tape, const attn__linear_part *part, int64_t out, attn_dtype dtype)
{
    int64_t shape[ATTN_MAX_RANK];
    attn__linear_part made = *part;
    if (!part->x || !part->w)
        return NULL;
    memcpy(shape, part->x->shape, sizeof shape);
    shape[part->x->rank - 1] = out;
    made.y = attn__op_result(tape, dtype, part->x->rank, shape);
    return attn__linear_part_run(tape, &made) ? made.y : NULL;
}

attn_tensor *attn__part_of(attn_tape *tape, attn_tensor *x, int64_t begin, int64_t end)
{
    int64_t shape[ATTN_MAX_RANK], step = x->shape[0] ? x->size / x->shape[0] : 0;
    memcpy(shape, x->shape, sizeof shape);
    shape[0] = end - begin;
    return attn__op_view(tape, x, begin * step, x->rank, shape);
}
