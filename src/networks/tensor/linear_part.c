/* SPDX-License-Identifier: MIT */
#include "tensor/linear_part.h"

#include "base/bf16.h"
#include "base/parallel.h"
#include "gemm/int8_product.h"
#include "gemm/int8_rows.h"
#include "tensor/matrix_product.h"
#include "tensor/op.h"
#include "tensor/packed_weights.h"

#include <string.h>

/* Returns the address of the used part of w. Returns NULL and records an error if w is packed in a form that this
 * product cannot read. */
static const char *weights_of(attn_tape *tape, const attn__linear_part *p, bool *bf16)
{
    const char *rows = attn__weight_rows(tape, p->w, bf16);
    size_t number = *bf16 ? sizeof(uint16_t) : attn_dtype_size(p->w->dtype);
    return rows ? rows + (size_t)(p->row * p->w->shape[1] + p->column) * number : NULL;
}

bool attn__linear_part_run(attn_tape *tape, const attn__linear_part *p)
{
    if (!p->x || !p->w || !p->y)
        return false;
    int64_t in = p->x->shape[p->x->rank - 1], out = p->y->shape[p->y->rank - 1];
    size_t element = attn_dtype_size(p->w->dtype);
    bool bf16;
    const char *weights = weights_of(tape, p, &bf16);
    if (!weights)
        return false;
    return attn__gemm_linear(tape,
                             &(attn__gemm_problem){.dtype = p->x->dtype,
                                                   .m = attn__row_count(p->x),
                                                   .n = out,
                                                   .k = in,
                                                   .a = {p->x->data, in, 1, .bf16 = p->x->dtype == ATTN_BF16},
                                                   .b = {weights, p->w->shape[1], 1, .bf16 = bf16},
                                                   .c = p->y->data,
                                                   .c_bf16 = p->y->dtype == ATTN_BF16,
                                                   .ldc = out,
                                                   .add = p->add},
                             p->b ? (const char *)p->b->data + (size_t)p->row * element : NULL, p->activation,
                             p->packed);
}

enum { GRAIN = 16384 };

typedef struct rounding {
    attn__gemm_round_row *round;
    float *wide;
    uint16_t *narrow;
} rounding;

static void round_range(void *user, int64_t begin, int64_t end)
{
    const rounding *r = user;
    r->round(r->wide + begin, end - begin, r->narrow + begin);
}

void attn__round_to_bf16(attn_context *context, const float *from, int64_t n, uint16_t *to)
{
    rounding r = {attn__gemm_round_row_for(context->isa), (float *)(uintptr_t)from, to};
    attn__parallel_range(context->threads, n, GRAIN, round_range, &r);
}

float attn__quantize_row(const float *row, int64_t n, int8_t *q)
{
    return attn__int8_rows_for(ATTN_ISA_SCALAR)->quantize(row, n, q);
}

bool attn__fits_int8(int64_t in)
{
    return attn__int8_sums(in);
}

attn_tensor *attn__rounded(attn_tape *tape, const attn_tensor *x)
{
    attn_tensor *y = x ? attn__op_result(tape, ATTN_BF16, x->rank, x->shape) : NULL;
    if (!y)
        return NULL;
    attn__round_to_bf16(tape->context, x->data, x->size, y->data);
    return y;
}

static void widen_range(void *user, int64_t begin, int64_t end)
{
    const rounding *r = user;
    attn__widen_bf16(r->wide + begin, r->narrow + begin, end - begin);
}

attn_tensor *attn__widened(attn_tape *tape, const attn_tensor *x)
{
    attn_tensor *y = x ? attn__op_result(tape, ATTN_F32, x->rank, x->shape) : NULL;
    if (!y)
        return NULL;
    rounding r = {.wide = y->data, .narrow = x->data};
    attn__parallel_range(tape->context->threads, x->size, GRAIN, widen_range, &r);
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
