/* SPDX-License-Identifier: MIT
 * From an operation's product to src/gemm's. */
#include "tensor/matrix_product.h"

#include "base/integers.h"
#include "base/system.h"
#include "kernels/elementwise/elementwise.h"
#include "tensor/gemm_slices.h"
#include "tensor/linear_int8.h"
#include "tensor/op.h"

/* On a tape of lower precision f32 operands are rounded while they are packed. */
static attn_dtype type_on(const attn_tape *tape, attn_dtype dtype)
{
    return dtype == ATTN_F32 && attn__rounds(tape) ? ATTN_BF16 : dtype;
}

bool attn__gemm_problem_run(attn_tape *tape, const attn__gemm_problem *given)
{
    attn__gemm_plan plan;
    attn__gemm_problem problem = *given;
    problem.dtype = type_on(tape, given->dtype);
    attn__gemm_plan_make(&plan, &problem, tape->context->isa, tape->context->threads);
    attn__hold workspace = {0};
    size_t bytes = attn__gemm_workspace(&plan);
    if (bytes > 0) {
        workspace = attn__scratch(tape, bytes);
        if (!workspace.data)
            return false;
    }
    attn__gemm_run(&plan, workspace.data);
    attn__scratch_release(workspace);
    return true;
}

/* Rows that are done stay as they are: where C is added to, doing them again would count them twice. */
attn__gemm_args attn__gemm_rows_from(const attn__gemm_args *g, int64_t row)
{
    attn__gemm_args rest = *g;
    rest.m = g->m - row;
    rest.a = (const float *)g->a + row * (g->transpose_a ? 1 : g->lda);
    rest.c = (float *)g->c + row * g->ldc;
    return rest;
}

/* What follows the sums: bias and activation. */
typedef struct epilogue {
    attn__elementwise_fn run;
    const char *bias;
    int64_t element;
    int kind;
} epilogue;

static void finish(const void *user, void *c, int64_t row, int64_t column, int64_t n)
{
    const epilogue *e = user;
    (void)row;
    attn__elementwise_args args = {
        .x = e->bias ? e->bias + column * e->element : NULL, .y = c, .n = n, .kind = e->kind};
    e->run(&args, 0, 1);
}

bool attn__gemm_in_vectors(attn_tape *tape, const attn__gemm_args *g)
{
    bool is_double = g->dtype == ATTN_F64, packed = g->packed && g->packed->hold.data && !g->packed->slices;
    epilogue after = {.run = attn__elementwise_for(is_double, tape->context->isa)->run[ATTN__ELEMENTWISE_BIAS_ACTIVATE],
                      .bias = g->bias,
                      .element = is_double ? sizeof(double) : sizeof(float),
                      .kind = (int)g->activation};
    bool plain = !g->bias && g->activation == ATTN_ACTIVATION_IDENTITY;
    return attn__gemm_problem_run(
        tape,
        &(attn__gemm_problem){.dtype = g->dtype,
                              .m = g->m,
                              .n = g->n,
                              .k = g->k,
                              .a = {g->a, g->transpose_a ? 1 : g->lda, g->transpose_a ? g->lda : 1,
                                    .bf16 = g->dtype == ATTN_BF16 || g->a_bf16},
                              .b = {g->b, g->transpose_b ? g->ldb : 1, g->transpose_b ? 1 : g->ldb, .bf16 = g->b_bf16},
                              .packed = packed ? g->packed->hold.data : NULL,
                              .c = g->c,
                              .c_bf16 = g->c_bf16,
                              .ldc = g->ldc,
                              .add = g->add,
                              .finish = plain ? NULL : finish,
                              .user = &after});
}

bool attn__gemm(attn_tape *tape, const attn__gemm_args *args)
{
    if (args->m == 0 || args->n == 0)
        return true;
    const attn__packed *packed = args->packed && args->packed->hold.data ? args->packed : NULL;
    if (attn__linear_int8_takes(tape, args)) {
        attn__gemm_args g = *args;
        g.packed = packed && packed->dtype == ATTN_I32 ? packed : NULL;
        return attn__linear_int8(tape, &g);
    }
    if (type_on(tape, args->dtype) != ATTN_F32)
        return attn__gemm_in_vectors(tape, args);
    attn_status status = packed && !packed->slices ? ATTN_ERROR_UNSUPPORTED : attn__gemm_slices(tape, args, packed);
    return status == ATTN_ERROR_UNSUPPORTED ? attn__gemm_in_vectors(tape, args) : status == ATTN_OK;
}

/* In panels of the micro-kernel; `over`: each part of the weights leaves memory when it is packed. */
static attn_status pack_panels(attn_tape *tape, attn_dtype dtype, attn__gemm_operand b, int64_t n, int64_t k, bool over,
                               attn__packed *packed)
{
    attn__gemm_problem problem = {.dtype = dtype, .n = n, .k = k, .b = b};
    attn__hold hold = attn__scratch(tape, attn__gemm_packed_bytes(&problem, tape->context->isa));
    *packed = (attn__packed){dtype, n, k, hold, .slices = false};
    if (!hold.data)
        return ATTN_ERROR_MEMORY;
    int64_t part = over ? ATTN__GEMM_PART : attn__most(n, 1), row = b.outer * (dtype == ATTN_F64 ? 8 : 4);
    for (int64_t first = 0; first < n; first += part) {
        int64_t end = attn__least(first + part, n);
        attn__gemm_pack_b(&problem, tape->context->isa, tape->context->threads, first, end, hold.data);
        if (over)
            attn__system_drop_pages((const char *)b.data + first * row, (size_t)((end - first) * row));
    }
    return ATTN_OK;
}

attn_status attn__gemm_pack_rounded(attn_tape *tape, const uint16_t *b, int64_t ldb, int64_t n, int64_t k,
                                    attn__packed *packed)
{
    return pack_panels(tape, ATTN_BF16, (attn__gemm_operand){b, ldb, 1, .bf16 = true}, n, k, false, packed);
}

attn_status attn__gemm_pack(attn_tape *tape, attn_dtype dtype, const float *b, int64_t ldb, int64_t n, int64_t k,
                            attn__packed *packed)
{
    if (attn__linear_int8_for(tape, dtype, k))
        return attn__linear_int8_pack(tape, b, ldb, n, k, packed);
    dtype = type_on(tape, dtype);
    attn_status status =
        dtype == ATTN_F32 ? attn__gemm_slices_pack(tape, b, ldb, n, k, packed) : ATTN_ERROR_UNSUPPORTED;
    return status == ATTN_ERROR_UNSUPPORTED ? pack_panels(tape, dtype, attn__matrix(b, ldb, 1), n, k, false, packed)
                                            : status;
}

attn_status attn__gemm_pack_over(attn_tape *tape, attn_dtype dtype, float *b, int64_t ldb, int64_t n, int64_t k,
                                 attn__packed *packed)
{
    if (attn__linear_int8_for(tape, dtype, k))
        return attn__linear_int8_pack(tape, b, ldb, n, k, packed);
    dtype = type_on(tape, dtype);
    if (dtype == ATTN_F32 && attn__slices_for(tape->context->isa))
        return ATTN_ERROR_UNSUPPORTED;
    return pack_panels(tape, dtype, attn__matrix(b, ldb, 1), n, k, true, packed);
}

bool attn__gemm_packed_fits(const attn_tape *tape, attn_dtype dtype, const attn__packed *packed)
{
    return packed->dtype == (attn__linear_int8_for(tape, dtype, packed->k) ? ATTN_I32 : type_on(tape, dtype));
}

void attn__gemm_packed_row(const attn_context *context, const attn__packed *packed, int64_t row, void *to)
{
    attn__gemm_problem problem = {.dtype = packed->dtype, .n = packed->n, .k = packed->k};
    attn__gemm_packed_column(&problem, context->isa, packed->hold.data, row, to);
}

void attn__gemm_unpack(attn__packed *packed)
{
    if (packed->hold.data)
        attn__scratch_release(packed->hold);
    *packed = (attn__packed){0};
}
