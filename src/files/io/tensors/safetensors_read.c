/* SPDX-License-Identifier: MIT
 *
 * Reads safetensors. A file has three parts: the length of the header (u64), the header (JSON), and the bytes of the
 * tensors.
 */
#include "io/json.h"
#include "io/tensors/quantized.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER = 100000000, MAX_VALUES = 2000000 };

static const struct {
    const char *name;
    attn__element element;
} types[] = {
    {"F32", ATTN__F32}, {"F16", ATTN__F16}, {"BF16", ATTN__BF16}, {"F64", ATTN__F64}, {"I64", ATTN__I64},
    {"I32", ATTN__I32}, {"U8", ATTN__U8},   {"BOOL", ATTN__BOOL}, {"I8", ATTN__I8},   {"I16", ATTN__I16},
    {"U16", ATTN__U16}, {"U32", ATTN__U32}, {"U64", ATTN__U64},
};

typedef struct reader {
    attn__findings *findings;
    const attn__input *input;
    size_t begin;
    size_t next; /* offset relative to `begin` at which the next tensor must begin */
} reader;

static attn_status fail(const reader *r, attn_status status, const char *tensor, const char *what)
{
    return attn__input_fail(r->input, status, 8, "header: tensor \"%.100s\": %s", tensor, what);
}

static attn_status read_type(const reader *r, const char *tensor, const json_t *info, attn__array *array)
{
    const char *type = json_string_value(json_object_get(info, "dtype"));
    if (!type)
        return fail(r, ATTN_ERROR_FORMAT, tensor, "\"dtype\" is missing or not a text");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(types[i].name, type) == 0) {
            array->element = types[i].element;
            return ATTN_OK;
        }
    }
    return attn__input_fail(r->input, ATTN_ERROR_UNSUPPORTED, 8,
                            "header: tensor \"%.100s\": type \"%.20s\" is not supported; "
                            "supported: bool, integers, and reals of 16, 32 or 64 bits",
                            tensor, type);
}

static attn_status read_shape(const reader *r, const char *tensor, const json_t *info, attn__array *array, size_t *size)
{
    const json_t *shape = json_object_get(info, "shape");
    if (!json_is_array(shape))
        return fail(r, ATTN_ERROR_FORMAT, tensor, "\"shape\" is missing or not a list");
    if (json_array_size(shape) > ATTN_MAX_RANK)
        return fail(r, ATTN_ERROR_UNSUPPORTED, tensor, "the tensor has more than 8 axes, the limit");
    array->rank = (int)json_array_size(shape);
    for (int i = 0; i < array->rank; i++) {
        const json_t *length = json_array_get(shape, (size_t)i);
        array->shape[i] = json_integer_value(length);
        if (!json_is_integer(length) || array->shape[i] < 0)
            return fail(r, ATTN_ERROR_FORMAT, tensor, "\"shape\" must hold integers of at least 0");
    }
    *size = attn__array_set_rows(array);
    return *size == SIZE_MAX ? fail(r, ATTN_ERROR_FORMAT, tensor, "its size overflows") : ATTN_OK;
}

/* Finds the bytes of a tensor. Checks that the number of bytes matches the tensor's type and shape. */
static attn_status read_offsets(reader *r, const char *tensor, const json_t *info, size_t size, attn__array *array)
{
    const json_t *offsets = json_object_get(info, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *second = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(second))
        return fail(r, ATTN_ERROR_FORMAT, tensor, "\"data_offsets\" is missing or not two integers");
    int64_t begin = json_integer_value(first), end = json_integer_value(second);
    size_t room = r->input->size - r->begin;
    if (begin < 0 || end < begin || (uint64_t)end > room)
        return attn__input_fail(r->input, ATTN_ERROR_FORMAT, 8,
                                "header: tensor \"%.100s\": offsets %" PRId64 " to %" PRId64
                                " do not lie in the %zu bytes of data",
                                tensor, begin, end, room);
    if ((uint64_t)(end - begin) != size)
        return attn__input_fail(
            r->input, ATTN_ERROR_FORMAT, 8,
            "header: tensor \"%.100s\": type and shape need %zu bytes, but the offsets give %" PRId64 " bytes", tensor,
            size, end - begin);
    array->data = r->input->data + r->begin + (size_t)begin;
    return ATTN_OK;
}

/* The entry must have exactly three members, as in the format's reference implementation. */
static attn_status read_tensor(reader *r, const char *name, const json_t *info)
{
    attn__array array = {0};
    size_t size = 0;
    if (!json_is_object(info) || json_object_size(info) != 3)
        return fail(r, ATTN_ERROR_FORMAT, name,
                    "expected an object with \"dtype\", \"shape\" and \"data_offsets\" only");
    attn_status status = read_type(r, name, info, &array);
    if (status == ATTN_OK)
        status = read_shape(r, name, info, &array, &size);
    if (status == ATTN_OK)
        status = read_offsets(r, name, info, size, &array);
    if (status != ATTN_OK)
        return status;
    array.name = attn__strdup(r->input->context, name);
    return array.name ? attn__arrays_add(&r->findings->arrays, &array) : ATTN_ERROR_MEMORY;
}

/* All values must be texts. This is checked even if the caller does not request the metadata. */
static attn_status read_metadata(reader *r, const json_t *metadata)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return attn__input_fail(r->input, ATTN_ERROR_FORMAT, 8, "header: __metadata__ is not an object");
    json_object_foreach((json_t *)(uintptr_t)metadata, key, value)
    {
        if (!json_is_string(value))
            return attn__input_fail(r->input, ATTN_ERROR_FORMAT, 8,
                                    "header: the value of \"%.100s\" in __metadata__ is not a text", key);
        attn_status status = ATTN_OK;
        if (r->findings->metadata)
            status = attn_config_set_text(r->findings->metadata, key, json_string_value(value));
        if (status != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}

/* --------------------------------------------------------------------------------------- the whole file */

static attn_status read_header(reader *r, size_t size)
{
    attn__input text = *r->input;
    text.data += 8;
    text.size = size;
    if (size == 0 || text.data[0] != '{')
        return attn__input_fail(r->input, ATTN_ERROR_FORMAT, 8,
                                "not a safetensors file: the header does not begin with {");
    json_t *root;
    attn_status status = attn__json_parse(&root, &text, 4, MAX_VALUES, 8);
    const char *name;
    json_t *info;
    json_object_foreach(root, name, info)
    {
        if (status != ATTN_OK)
            break;
        status = strcmp(name, "__metadata__") == 0 ? read_metadata(r, info) : read_tensor(r, name, info);
    }
    json_decref(root);
    return status;
}

/* Compares two tensors by the offsets of their bytes, for sorting. Holes and overlaps are then found, because each
 * tensor must begin where the one before it ends. */
static int by_place(const void *a, const void *b)
{
    const attn__array *x = a, *y = b;
    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    return (attn__array_count(x) > 0) - (attn__array_count(y) > 0);
}

static size_t array_bytes(const attn__array *array)
{
    return (size_t)attn__array_count(array) * attn__element_size(array->element);
}

static attn_status check_places(reader *r)
{
    attn__arrays *arrays = &r->findings->arrays;
    if (arrays->n > 0)
        qsort(arrays->items, (size_t)arrays->n, sizeof *arrays->items, by_place);
    for (int64_t i = 0; i < arrays->n; i++) {
        size_t place = (size_t)(arrays->items[i].data - r->input->data) - r->begin;
        if (place != r->next)
            return attn__input_fail(r->input, ATTN_ERROR_FORMAT, r->begin + r->next,
                                    "tensor \"%.100s\" begins at byte %zu of the data; expected byte %zu, where the "
                                    "tensor before ends",
                                    arrays->items[i].name, place, r->next);
        r->next += array_bytes(&arrays->items[i]);
    }
    size_t left = r->input->size - r->begin - r->next;
    return left == 0 ? ATTN_OK
                     : attn__input_fail(r->input, ATTN_ERROR_FORMAT, r->begin + r->next,
                                        "%zu bytes follow the last tensor; expected the end of the file", left);
}

attn_status attn__safetensors_find(attn__findings *findings, const attn__input *input)
{
    if (input->size < 8)
        return attn__input_fail(input, ATTN_ERROR_FORMAT, 0, "not a safetensors file: shorter than 8 bytes");
    uint64_t header = attn__read_u64(input->data);
    if (header > MAX_HEADER)
        return attn__input_fail(
            input, ATTN_ERROR_FORMAT, 0,
            "neither a PyTorch nor a safetensors file: a safetensors header has at most 100000000 bytes, but the "
            "first 8 bytes give %" PRIu64,
            header);
    if (header > input->size - 8)
        return attn__input_fail(input, ATTN_ERROR_FORMAT, 0,
                                "the header should have %" PRIu64 " bytes, but the file ends after %zu", header,
                                input->size - 8);
    reader r = {.findings = findings, .input = input, .begin = 8 + (size_t)header};
    attn_status status = read_header(&r, (size_t)header);
    if (status == ATTN_OK)
        status = check_places(&r);
    return status == ATTN_OK ? attn__findings_dequantize(findings) : status;
}
