/* SPDX-License-Identifier: MIT
 *
 * Implements operations that make tensors: from given values, from a tensor in another shape, and from a tensor in
 * another type. */
#include "tensor/op.h"

#include <string.h>

attn_tensor *attn_tape_tensor(attn_tape *tape, attn_dtype dtype, int rank, const int64_t *shape, const void *data)
{
    ATTN__TAPE_CALL(tape->context);
    attn_tensor *y = attn__op_result(tape, dtype, rank, shape);
    if (!y)
        return NULL;
    if (data)
        memcpy(y->data, data, attn__tensor_bytes(y));
    else
        memset(y->data, 0, attn__tensor_bytes(y));
    return y;
}

static void reshape_backward(attn_tape *tape, attn__node *node)
{
    attn__grad_give(tape, node->x[0], attn__grad_share(node->y));
}

/* Computes the length of the axis that the caller gave as -1, and checks the number of elements. */
static bool resolve_shape(attn_tape *tape, const attn_tensor *x, int rank, const int64_t *wanted, int64_t *shape)
{
    int inferred = -1;
    int64_t known = 1;
    bool fits = rank >= 0 && rank <= ATTN_MAX_RANK;
    for (int i = 0; i < rank && fits; i++) {
        shape[i] = wanted[i];
        fits = wanted[i] >= 0 || (wanted[i] == -1 && inferred < 0);
        if (wanted[i] == -1)
            inferred = i;
        else if (fits)
            fits = !__builtin_mul_overflow(known, wanted[i], &known);
    }
    if (fits && inferred >= 0) {
        shape[inferred] = known > 0 ? x->size / known : 0;
        known *= shape[inferred];
    }
    if (fits && known == x->size)
        return true;
    char from[ATTN__SHAPE_TEXT], to[ATTN__SHAPE_TEXT];
    attn_tensor asked = {.rank = rank < 0 ? 0 : rank > ATTN_MAX_RANK ? ATTN_MAX_RANK : rank};
    if (asked.rank > 0)
        memcpy(asked.shape, wanted, (size_t)asked.rank * sizeof *wanted);
    attn__op_shape_error(tape, "reshape: %s cannot become %s; both must have as many elements",
                         attn__shape_text(x, from), attn__shape_text(&asked, to));
    return false;
}

attn_tensor *attn_reshape(attn_tape *tape, attn_tensor *x, int rank, const int64_t *shape)
{
    ATTN__TAPE_CALL(tape->context);
    int64_t resolved[ATTN_MAX_RANK];
    if (!x || !resolve_shape(tape, x, rank, shape, resolved))
        return NULL;
    if (attn__tensor_must_have_data(tape->context, x, "to reshape") != ATTN_OK)
        return NULL;
    attn_tensor *y = attn__op_view(tape, x, 0, rank, resolved);
    attn__node *node;
    if (!y || !attn__op_record(tape, &node, reshape_backward, y, 1, &x, 0, 0))
        return NULL;
    return y;
}

/* ------------------------------------------------------------------------------------------------ cast */

static double read_number(const void *data, attn_dtype dtype, int64_t i)
{
    switch (dtype) {
    case ATTN_F32:
        return (double)((const float *)data)[i];
    case ATTN_F64:
        return ((const double *)data)[i];
    case ATTN_I32:
        return ((const int32_t *)data)[i];
    default:
        return ((const uint8_t *)data)[i];
    }
}

/* Returns whether the type can represent x without its fractional part. */
static bool fits(attn_dtype dtype, double x)
{
    return dtype == ATTN_I32 ? x > INT32_MIN - 1.0 && x < INT32_MAX + 1.0 : dtype != ATTN_U8 || (x > -1 && x < 256);
}

static void write_number(void *data, attn_dtype dtype, int64_t i, double x)
{
    switch (dtype) {
    case ATTN_F32:
        ((float *)data)[i] = (float)x;
        break;
    case ATTN_F64:
        ((double *)data)[i] = x;
        break;
    case ATTN_I32:
        ((int32_t *)data)[i] = (int32_t)x;
        break;
    default:
        ((uint8_t *)data)[i] = dtype == ATTN_BOOL ? x != 0 : (uint8_t)x;
    }
}

/* Returns the index of the first element that the new type cannot represent, or n if there is none. */
static int64_t convert(void *to, attn_dtype to_type, const void *from, attn_dtype from_type, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double x = read_number(from, from_type, i);
        if (!fits(to_type, x))
            return i;
        write_number(to, to_type, i, x);
    }
    return n;
}

static void cast_backward(attn_tape *tape, attn__node *node)
{
    attn_tensor *x = node->x[0], *y = node->y;
    attn__hold dx = attn__scratch(tape, attn__tensor_bytes(x));
    tape->failed |= !dx.data;
    if (!dx.data)
        return;
    (void)convert(dx.data, x->dtype, y->grad->data, y->dtype, x->size);
    attn__grad_give(tape, x, dx);
}

static bool castable(attn_dtype dtype)
{
    return dtype == ATTN_F32 || dtype == ATTN_F64 || dtype == ATTN_I32 || dtype == ATTN_U8 || dtype == ATTN_BOOL;
}

static bool is_real(attn_dtype dtype)
{
    return dtype == ATTN_F32 || dtype == ATTN_F64;
}

attn_tensor *attn_cast(attn_tape *tape, attn_tensor *x, attn_dtype dtype)
{
    ATTN__TAPE_CALL(tape->context);
    if (!x || attn__tensor_must_have_data(tape->context, x, "to cast") != ATTN_OK)
        return NULL;
    if (!castable(dtype) || !castable(x->dtype)) {
        attn__fail(tape->context, ATTN_ERROR_UNSUPPORTED, "cast: from %s to %s is not supported",
                   attn_dtype_name(x->dtype), attn_dtype_name(dtype));
        return NULL;
    }
    attn_tensor *y = attn__op_result(tape, dtype, x->rank, x->shape), *inputs[1] = {x};
    attn__node *node;
    bool differentiable = is_real(dtype) && is_real(x->dtype);
    if (!y || !attn__op_record(tape, &node, cast_backward, y, differentiable, inputs, 0, 0))
        return NULL;
    int64_t done = convert(y->data, dtype, x->data, x->dtype, x->size);
    if (done == x->size)
        return y;
    attn__fail(tape->context, ATTN_ERROR_ARGUMENT, "cast: element %lld, %g, does not fit in %s", (long long)done,
               read_number(x->data, x->dtype, done), attn_dtype_name(dtype));
    return NULL;
}
