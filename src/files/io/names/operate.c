/* SPDX-License-Identifier: MIT
 *
 * Implements the operations of names files on a tensor. Most operations change only the shape and the strides.
 */
#include "io/names/names.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Allocates memory for the reals of an array that a rule makes. The total size of all such arrays is limited to a
 * multiple of the file's size. */
attn_status attn__findings_reals(attn__findings *findings, attn__array *array)
{
    size_t bound = attn__size_add(attn__size_mul(findings->arrays.backing, 16), (size_t)256 << 20);
    attn_context *context = findings->arrays.context;
    array->element = array->element == ATTN__F64 ? ATTN__F64 : ATTN__F32;
    array->swapped = false;
    array->scales = NULL;
    array->stored = 0;
    size_t size = attn__array_set_rows(array);
    if (size > bound - findings->made)
        return attn__fail(context, ATTN_ERROR_FORMAT, "%s: tensor \"%.200s\": the rules make more than %zu bytes",
                          findings->arrays.file, array->origin, bound);
    findings->made += size;
    array->data = attn__findings_memory(findings, size ? size : 1);
    return array->data ? ATTN_OK : ATTN_ERROR_MEMORY;
}

static attn_status fail(attn__findings *findings, const attn__rule *rule, const attn__array *array, const char *format,
                        ...)
{
    char shape[128], what[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    attn__array_shape_text(shape, array->rank, array->shape);
    return attn__fail(findings->arrays.context, ATTN_ERROR_FORMAT,
                      "%s: tensor \"%.200s\" %s: line %d of the names file: %s", findings->arrays.file, array->origin,
                      shape, rule->line, what);
}

/* Copies the elements of the array to new memory, in row-major order. */
static attn_status make_own(attn__findings *findings, const attn__rule *rule, attn__array *array)
{
    attn__array from = *array;
    if (!attn__array_is_real(array))
        return fail(findings, rule, array, "this operation needs a tensor of real numbers");
    attn_status status = attn__findings_reals(findings, array);
    attn_dtype dtype = array->element == ATTN__F64 ? ATTN_F64 : ATTN_F32;
    return status == ATTN_OK ? attn__array_copy(&findings->arrays, &from, dtype, (void *)(uintptr_t)array->data)
                             : status;
}

static void skip(attn__array *array, int axis, int64_t from, int64_t length)
{
    if (array->data && length > 0)
        array->data += (size_t)(from * array->stride[axis]) * attn__element_size(array->element);
    array->shape[axis] = length;
}

static attn_status transpose(attn__findings *findings, const attn__rule *rule, attn__array *array)
{
    if (array->rank != 2)
        return fail(findings, rule, array, "only a matrix can be transposed");
    int64_t rows = array->shape[0], step = array->stride[0];
    array->shape[0] = array->shape[1];
    array->stride[0] = array->stride[1];
    array->shape[1] = rows;
    array->stride[1] = step;
    return ATTN_OK;
}

static attn_status part(attn__findings *findings, const attn__rule *rule, const attn__operation *o, attn__array *array)
{
    if (o->axis >= array->rank)
        return fail(findings, rule, array, "the rule gives axis %d, but the tensor has %d axes", o->axis, array->rank);
    if (array->shape[o->axis] % o->b != 0)
        return fail(findings, rule, array,
                    "axis %d has length %" PRId64 ", which is not divisible by %" PRId64 ", the number of parts",
                    o->axis, array->shape[o->axis], o->b);
    int64_t length = array->shape[o->axis] / o->b;
    skip(array, o->axis, o->a * length, length);
    return ATTN_OK;
}

static attn_status rows(attn__findings *findings, const attn__rule *rule, const attn__operation *o, attn__array *array)
{
    if (array->rank < 1)
        return fail(findings, rule, array, "the tensor has no axes, and so no rows to take");
    int64_t end = o->b == INT64_MAX ? array->shape[0] : o->b;
    if (end > array->shape[0] || o->a >= end)
        return fail(findings, rule, array, "the rule needs at least %" PRId64 " rows, but the tensor has %" PRId64,
                    o->b == INT64_MAX ? o->a + 1 : o->b, array->shape[0]);
    skip(array, 0, o->a, end - o->a);
    return ATTN_OK;
}

static void squeeze(attn__array *array)
{
    int rank = 0;
    for (int i = 0; i < array->rank; i++) {
        if (array->shape[i] == 1)
            continue;
        array->shape[rank] = array->shape[i];
        array->stride[rank++] = array->stride[i];
    }
    array->rank = rank;
}

static bool is_dense(const attn__array *array)
{
    attn__array rows = *array;
    (void)attn__array_set_rows(&rows);
    return array->rank == 0 || memcmp(rows.stride, array->stride, (size_t)array->rank * sizeof *rows.stride) == 0;
}

static attn_status reshape(attn__findings *findings, const attn__rule *rule, const attn__operation *o,
                           attn__array *array)
{
    size_t count = (size_t)attn__array_count(array), known = 1;
    int open = -1;
    for (int i = 0; i < o->rank; i++)
        if (o->shape[i] < 0)
            open = i;
        else
            known = attn__size_mul(known, (size_t)o->shape[i]);
    if (open < 0 ? known != count : known == 0 || count % known != 0)
        return fail(findings, rule, array,
                    open < 0 ? "the shape that the rule gives has %zu elements, but the tensor has %zu"
                             : "the shape that the rule gives has a multiple of %zu elements, but the tensor has %zu",
                    known, count);
    attn_status status = is_dense(array) ? ATTN_OK : make_own(findings, rule, array);
    if (status != ATTN_OK)
        return status;
    array->rank = o->rank;
    memcpy(array->shape, o->shape, sizeof array->shape);
    if (open >= 0)
        array->shape[open] = (int64_t)(count / known);
    (void)attn__array_set_rows(array);
    return ATTN_OK;
}

static attn_status scale(attn__findings *findings, const attn__rule *rule, double factor, attn__array *array)
{
    attn_status status = make_own(findings, rule, array);
    int64_t n = status == ATTN_OK ? attn__array_count(array) : 0;
    float *small = (float *)(uintptr_t)array->data;
    double *large = (double *)(uintptr_t)array->data;
    for (int64_t i = 0; i < n; i++)
        if (array->element == ATTN__F64)
            large[i] *= factor;
        else
            small[i] = (float)(small[i] * factor);
    return status;
}

static attn_status append_zero_row(attn__findings *findings, const attn__rule *rule, attn__array *array)
{
    attn__array from = *array;
    if (array->rank < 1)
        return fail(findings, rule, array, "the tensor has no axes, so no row can be appended");
    if (!attn__array_is_real(array))
        return fail(findings, rule, array, "a row can be appended only to a tensor of real numbers");
    array->shape[0]++;
    attn_status status = attn__findings_reals(findings, array);
    if (status != ATTN_OK)
        return status;
    size_t size = attn__element_size(array->element);
    uint8_t *out = (uint8_t *)(uintptr_t)array->data;
    memset(out, 0, (size_t)attn__array_count(array) * size);
    return attn__array_copy(&findings->arrays, &from, array->element == ATTN__F64 ? ATTN_F64 : ATTN_F32, out);
}

attn_status attn__rule_operate(const attn__rule *rule, attn__findings *findings, attn__array *array)
{
    attn_status status = ATTN_OK;
    for (int i = 0; i < rule->n && status == ATTN_OK; i++) {
        const attn__operation *o = &rule->operations[i];
        switch (o->kind) {
        case ATTN__TRANSPOSE:
            status = transpose(findings, rule, array);
            break;
        case ATTN__PART:
            status = part(findings, rule, o, array);
            break;
        case ATTN__ROWS:
            status = rows(findings, rule, o, array);
            break;
        case ATTN__RESHAPE:
            status = reshape(findings, rule, o, array);
            break;
        case ATTN__SQUEEZE:
            squeeze(array);
            break;
        case ATTN__SCALE:
            status = scale(findings, rule, o->factor, array);
            break;
        case ATTN__ZERO_ROW:
            status = append_zero_row(findings, rule, array);
            break;
        case ATTN__JOIN: /* the slices are joined later, when all of them are there */
        case ATTN__ADD:
            status = attn__array_is_real(array)
                         ? ATTN_OK
                         : fail(findings, rule, array, "only real numbers can be joined or added");
            break;
        case ATTN__SAME: /* whether the tensors are equal is checked later, when all of them are there */
            break;
        }
    }
    return status;
}
