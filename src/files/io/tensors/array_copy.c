/* SPDX-License-Identifier: MIT */
#include "io/tensors/array.h"

#include "base/bf16.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const uint8_t element_sizes[ATTN__ELEMENTS] = {
    [ATTN__F32] = 4, [ATTN__F64] = 8, [ATTN__F16] = 2,  [ATTN__BF16] = 2, [ATTN__I8] = 1,
    [ATTN__I16] = 2, [ATTN__I32] = 4, [ATTN__I64] = 8,  [ATTN__U8] = 1,   [ATTN__U16] = 2,
    [ATTN__U32] = 4, [ATTN__U64] = 8, [ATTN__BOOL] = 1,
};

size_t attn__element_size(attn__element element)
{
    return element_sizes[element];
}

/* Returns the bits of an element, lowest byte first. */
static uint64_t element_bits(const uint8_t *p, size_t size, bool swapped)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < size; i++)
        bits |= (uint64_t)p[swapped ? size - 1 - i : i] << (8 * i);
    return bits;
}

static double from_f32_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* Converts the bits of an IEEE 754 binary16 number, which has 1 sign bit, 5 exponent bits and 10 mantissa bits. */
static double from_f16_bits(unsigned bits)
{
    unsigned exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double value;
    if (exponent == 31)
        value = mantissa ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        value = ldexp((double)mantissa, -24);
    else
        value = ldexp((double)(mantissa + 1024), (int)exponent - 25);
    return bits >> 15 ? -value : value;
}

static double real_of(attn__element element, uint64_t bits)
{
    double value;
    switch (element) {
    case ATTN__F32:
        return from_f32_bits((uint32_t)bits);
    case ATTN__BF16:
        return (double)attn__from_bf16((uint16_t)bits);
    case ATTN__F16:
        return from_f16_bits((unsigned)bits);
    default:
        memcpy(&value, &bits, sizeof value);
        return value;
    }
}

/* Returns false if the element is a U64 that does not fit in *value. */
static bool integer_of(attn__element element, uint64_t bits, int64_t *value)
{
    switch (element) {
    case ATTN__I8:
        *value = (int8_t)bits; /* NOLINT: int8_t is a number here, not a character */
        return true;
    case ATTN__I16:
        *value = (int16_t)bits;
        return true;
    case ATTN__I32:
        *value = (int32_t)bits;
        return true;
    case ATTN__BOOL:
        *value = bits != 0;
        return true;
    default:
        *value = (int64_t)bits;
        return element != ATTN__U64 || bits <= INT64_MAX;
    }
}

/* ----------------------------------------------------------------------------------------------- store */

/* Returns false if the type cannot represent the value. */
static bool store_integer(attn_dtype dtype, int64_t value, void *out, int64_t i)
{
    switch (dtype) {
    case ATTN_I64:
        ((int64_t *)out)[i] = value;
        return true;
    case ATTN_I32:
        ((int32_t *)out)[i] = (int32_t)value;
        return value >= INT32_MIN && value <= INT32_MAX;
    case ATTN_U8:
        ((uint8_t *)out)[i] = (uint8_t)value;
        return value >= 0 && value <= UINT8_MAX;
    case ATTN_BOOL:
        ((uint8_t *)out)[i] = (uint8_t)value;
        return value == 0 || value == 1;
    case ATTN_F32:
        ((float *)out)[i] = (float)value;
        return true;
    default:
        ((double *)out)[i] = (double)value;
        return true;
    }
}

typedef struct copy {
    const attn__arrays *arrays;
    const attn__array *array;
    attn_dtype dtype;
    size_t element;
    bool same; /* true: both types are equal, so the bits are copied unchanged */
    uint8_t *out;
    int64_t done;
} copy;

static attn_status fail_fit(const copy *c)
{
    return attn__fail(c->arrays->context, ATTN_ERROR_FORMAT,
                      "%s: tensor \"%.100s\": element %" PRId64 " does not fit in %s", c->arrays->file, c->array->name,
                      c->done, attn_dtype_name(c->dtype));
}

/* `stride` is the distance between two elements, in elements. */
static void copy_bits(copy *c, const uint8_t *from, int64_t stride, int64_t n)
{
    uint8_t *out = c->out + (size_t)c->done * c->element;
    if (stride == 1 && !c->array->swapped) {
        memcpy(out, from, (size_t)n * c->element);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *p = from + i * stride * (int64_t)c->element;
        for (size_t b = 0; b < c->element; b++)
            out[(size_t)i * c->element + b] = p[c->array->swapped ? c->element - 1 - b : b];
    }
}

static void copy_reals(copy *c, const uint8_t *from, int64_t stride, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = element_bits(from + i * stride * (int64_t)c->element, c->element, c->array->swapped);
        double value = real_of(c->array->element, bits);
        if (c->dtype == ATTN_F32)
            ((float *)(void *)c->out)[c->done + i] = (float)value;
        else
            ((double *)(void *)c->out)[c->done + i] = value;
    }
}

/* bf16 has a function of its own, because this conversion is frequent and must be fast. */
static void copy_bf16(copy *c, const uint8_t *from, int64_t stride, int64_t n)
{
    float *out = (float *)(void *)c->out + c->done;
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *p = from + 2 * i * stride;
        out[i] = attn__from_bf16((uint16_t)(p[0] | p[1] << 8));
    }
}

/* Converts int8 weights to reals: multiplies each integer by the scale of its row. */
static void copy_scaled(copy *c, const uint8_t *from, int64_t stride, int64_t n)
{
    const attn__array *array = c->array;
    int64_t first = from - array->whole, begin = 0, end = 0;
    float scale = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = first + i * stride;
        if (at < begin || at >= end) {
            begin = at / array->row * array->row;
            end = begin + array->row;
            scale = (float)from_f32_bits(attn__read_u32(array->scales + 4 * (at / array->row)));
        }
        int value = (int8_t)array->whole[at]; /* NOLINT: int8_t is a number here, not a character */
        if (c->dtype == ATTN_F32)
            ((float *)(void *)c->out)[c->done + i] = (float)value * scale;
        else
            ((double *)(void *)c->out)[c->done + i] = (double)((float)value * scale);
    }
}

static attn_status copy_integers(copy *c, const uint8_t *from, int64_t stride, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = element_bits(from + i * stride * (int64_t)c->element, c->element, c->array->swapped);
        int64_t value;
        if (!integer_of(c->array->element, bits, &value) || !store_integer(c->dtype, value, c->out, c->done + i)) {
            c->done += i;
            return fail_fit(c);
        }
    }
    return ATTN_OK;
}

static attn_status copy_row(copy *c, const uint8_t *from, int64_t stride, int64_t n)
{
    attn_status status = ATTN_OK;
    if (c->same)
        copy_bits(c, from, stride, n);
    else if (c->array->scales)
        copy_scaled(c, from, stride, n);
    else if (c->array->element == ATTN__BF16 && c->dtype == ATTN_F32 && !c->array->swapped)
        copy_bf16(c, from, stride, n);
    else if (attn__array_is_real(c->array))
        copy_reals(c, from, stride, n);
    else
        status = copy_integers(c, from, stride, n);
    c->done += n;
    return status;
}

/* ------------------------------------------------------------------------------------------------ walk */

/* Merges adjacent axes of the array that are contiguous in memory, and returns the number of axes. An array without
 * axes gets one axis of length 1. */
static int merge_axes(const attn__array *array, int64_t *shape, int64_t *stride)
{
    int rank = 1;
    shape[0] = stride[0] = 1;
    for (int i = 0; i < array->rank; i++) {
        if (array->shape[i] == 1)
            continue;
        if (stride[rank - 1] == array->stride[i] * array->shape[i]) {
            shape[rank - 1] *= array->shape[i];
            stride[rank - 1] = array->stride[i];
        } else if (shape[rank - 1] == 1) {
            shape[rank - 1] = array->shape[i];
            stride[rank - 1] = array->stride[i];
        } else {
            shape[rank] = array->shape[i];
            stride[rank++] = array->stride[i];
        }
    }
    return rank;
}

/* Copies one run of elements, in pieces. The memory pages of a piece can be released before the next piece is read. */
static attn_status copy_run(copy *c, const uint8_t *from, int64_t stride, int64_t n)
{
    enum { PIECE = 1 << 18 };
    attn_status status = ATTN_OK;
    for (int64_t at = 0; at < n && status == ATTN_OK; at += PIECE) {
        int64_t count = n - at < PIECE ? n - at : PIECE;
        const uint8_t *piece = from + at * stride * (int64_t)c->element;
        status = copy_row(c, piece, stride, count);
        if (c->arrays->copied && count == PIECE && stride == 1)
            c->arrays->copied(c->arrays->user, piece, (size_t)count * c->element);
    }
    return status;
}

/* Copies all runs. A run is along the last merged axis. The indices of the other axes are counted like digits of a
 * number. */
static attn_status walk(copy *c)
{
    int64_t shape[ATTN_MAX_RANK + 1], stride[ATTN_MAX_RANK + 1], index[ATTN_MAX_RANK + 1] = {0};
    int rank = merge_axes(c->array, shape, stride), last = rank - 1;
    int64_t offset = 0;
    for (;;) {
        attn_status status = copy_run(c, c->array->data + offset * (int64_t)c->element, stride[last], shape[last]);
        if (status != ATTN_OK)
            return status;
        int axis = last - 1;
        for (; axis >= 0 && ++index[axis] == shape[axis]; axis--) {
            offset -= (shape[axis] - 1) * stride[axis];
            index[axis] = 0;
        }
        if (axis < 0)
            return ATTN_OK;
        offset += stride[axis];
    }
}

static bool same_type(attn__element element, attn_dtype dtype)
{
    static const attn_dtype same[ATTN__ELEMENTS] = {
        [ATTN__F32] = ATTN_F32, [ATTN__F64] = ATTN_F64, [ATTN__F16] = ATTN_F16, [ATTN__BF16] = ATTN_BF16,
        [ATTN__I32] = ATTN_I32, [ATTN__I64] = ATTN_I64, [ATTN__U8] = ATTN_U8,
    };
    /* the table has 0, which is ATTN_F32, for each type that has no entry, so ATTN_F32 needs a check of its own */
    return same[element] == dtype && (dtype != ATTN_F32 || element == ATTN__F32);
}

/* Returns the number of bytes from the beginning of the array's first element to the end of its last element in
 * memory. */
static size_t extent(const attn__array *array)
{
    int64_t last = 0;
    for (int i = 0; i < array->rank; i++) {
        if (array->stride[i] < 0)
            return 0;
        last += (array->shape[i] - 1) * array->stride[i];
    }
    return (size_t)(last + 1) * attn__element_size(array->element);
}

bool attn__array_converts(const attn__array *array, attn_dtype dtype)
{
    bool to_real = dtype == ATTN_F32 || dtype == ATTN_F64;
    bool to_integer = dtype == ATTN_I32 || dtype == ATTN_I64 || dtype == ATTN_U8 || dtype == ATTN_BOOL;
    return same_type(array->element, dtype) || to_real || (to_integer && !attn__array_is_real(array));
}

attn_status attn__array_copy(const attn__arrays *arrays, const attn__array *array, attn_dtype dtype, void *out)
{
    if (attn__array_count(array) == 0)
        return ATTN_OK;
    copy c = {.arrays = arrays,
              .array = array,
              .dtype = dtype,
              .element = attn__element_size(array->element),
              .same = same_type(array->element, dtype),
              .out = out};
    if (!attn__array_converts(array, dtype))
        return attn__fail(arrays->context, ATTN_ERROR_UNSUPPORTED, "%s: tensor \"%.100s\" cannot be converted to %s",
                          arrays->file, array->name, attn_dtype_name(dtype));
    attn_status status = walk(&c);
    if (arrays->copied)
        arrays->copied(arrays->user, array->data, extent(array));
    return status;
}
