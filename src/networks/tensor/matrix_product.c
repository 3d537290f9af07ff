/* SPDX-License-Identifier: MIT
 * Converts the products of operations to calls of src/engine/gemm. */
#include "tensor/matrix_product.h"

#include "gemm/product.h"
#include "tensor/op.h"

/* Returns the type in which a product is computed. If the tape's precision is lower than f32, f32 operands are rounded
 * to it while they are packed. */
static attn_dtype type_on(const attn_tape *tape, attn_dtype dtype)
{
    return dtype == ATTN_F32 && attn__rounds(tape) ? ATTN_BF16 : dtype;
}

static bool is_int8(const attn_tape *tape, attn_dtype dtype, int64_t k)
{
    return tape->precision == ATTN_PRECISION_INT8 && dtype == ATTN_F32 && attn__int8_sums(k);
}

bool attn__gemm(attn_tape *tape, const attn__gemm_problem *given)
{
    attn__product product;
    attn__gemm_problem problem = *given;
    problem.int8 = problem.int8 && is_int8(tape, problem.dtype, problem.k);
    problem.dtype = problem.int8 ? problem.dtype : type_on(tape, problem.dtype);
    attn__product_plan(&product, &problem, tape->context->isa, tape->context->threads);
    attn__hold workspace = {0};
    size_t bytes = attn__product_workspace(&product);
    if (bytes > 0) {
        workspace = attn__scratch(tape, bytes);
        if (!workspace.data)
            return false;
    }
    attn__product_run(&product, workspace.data);
    attn__scratch_release(workspace);
    return true;
}

/* Arguments of the epilogue, which runs after the sums of a product are complete. */
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

bool attn__gemm_linear(attn_tape *tape, const attn__gemm_problem *given, const void *bias, attn_activation activation,
                       const attn__packed *packed)
{
    bool is_double = given->dtype == ATTN_F64, plain = !bias && activation == ATTN_ACTIVATION_IDENTITY;
    epilogue after = {.run = attn__elementwise_for(is_double, tape->context->isa)->run[ATTN__ELEMENTWISE_BIAS_ACTIVATE],
                      .bias = bias,
                      .element = is_double ? sizeof(double) : sizeof(float),
                      .kind = (int)activation};
    attn__gemm_problem problem = *given;
    problem.int8 = true;
    problem.weights = packed && packed->weights.data ? &packed->weights : NULL;
    problem.finish = plain ? NULL : finish;
    problem.user = &after;
    return attn__gemm(tape, &problem);
}

/* Packs weights in the form `form`. If products with this form would not be faster, sets *serves to false and keeps no
 * memory. */
static attn_status pack_as(attn_tape *tape, attn__weights form, const attn__gemm_operand *w, bool drop, bool *serves,
                           attn__packed *packed)
{
    const attn_context *c = tape->context;
    size_t bytes = attn__weights_workspace(&form);
    attn__hold workspace = {0};
    *packed = (attn__packed){.weights = form, .hold = attn__scratch(tape, attn__weights_bytes(&form, c->isa))};
    if (packed->hold.data && bytes > 0)
        workspace = attn__scratch(tape, bytes);
    if (!packed->hold.data || (bytes > 0 && !workspace.data)) {
        attn__gemm_unpack(packed);
        return ATTN_ERROR_MEMORY;
    }
    packed->weights.data = packed->hold.data;
    *serves = attn__weights_pack(&packed->weights, w, drop, c->isa, c->threads, workspace.data);
    attn__scratch_release(workspace);
    if (!*serves)
        attn__gemm_unpack(packed);
    return ATTN_OK;
}

static attn_dtype type_of_packed(const attn_tape *tape, attn_dtype dtype, int64_t k)
{
    return is_int8(tape, dtype, k) ? ATTN_I32 : type_on(tape, dtype);
}

static attn_status pack(attn_tape *tape, attn_dtype dtype, attn__gemm_operand w, int64_t n, int64_t k, bool drop,
                        attn__packed *packed)
{
    attn__weights form = attn__weights_for(dtype, tape->context->isa, n, k);
    bool serves;
    attn_status status = pack_as(tape, form, &w, drop, &serves, packed);
    if (status != ATTN_OK || serves)
        return status;
    form.slices = false;
    return pack_as(tape, form, &w, drop, &serves, packed);
}

attn_status attn__gemm_pack_rounded(attn_tape *tape, const uint16_t *b, int64_t ldb, int64_t n, int64_t k,
                                    attn__packed *packed)
{
    return pack(tape, ATTN_BF16, (attn__gemm_operand){b, ldb, 1, .bf16 = true}, n, k, false, packed);
}

attn_status attn__gemm_pack(attn_tape *tape, attn_dtype dtype, const float *b, int64_t ldb, int64_t n, int64_t k,
                            bool drop, attn__packed *packed)
{
    return pack(tape, type_of_packed(tape, dtype, k), attn__matrix(b, ldb, 1), n, k, drop, packed);
}

bool attn__gemm_packs_slices(const attn_tape *tape, attn_dtype dtype, int64_t n, int64_t k)
{
    return attn__weights_for(type_of_packed(tape, dtype, k), tape->context->isa, n, k).slices;
}

bool attn__gemm_packed_fits(const attn_tape *tape, attn_dtype dtype, const attn__packed *packed)
{
    return packed->weights.dtype == type_of_packed(tape, dtype, packed->weights.k);
}

void attn__gemm_packed_row(const attn_context *context, const attn__packed *packed, int64_t row, void *to)
{
    attn__weights_row(&packed->weights, context->isa, row, to);
}

void attn__gemm_unpack(attn__packed *packed)
{
    if (packed->hold.data)
        attn__scratch_release(packed->hold);
    *packed = (attn__packed){0};
}
