/* SPDX-License-Identifier: MIT
 *
 * Reads NumPy's .npy files. A file has a magic string, a version, the length of the header, the header (a Python dict),
 * and the elements. */
#include "io/tensors/array.h"
#include "io/file.h"
#include "io/tensors/formats.h"

#include <string.h>

typedef struct reader {
    const attn__input *input;
    const char *at, *end; /* the part of the header's text that is not read yet */
    attn__array array;
    bool fortran;
    bool has_type, has_order, has_shape;
} reader;

static attn_status fail(const reader *r, attn_status status, const char *what)
{
    return attn__input_fail(r->input, status, (size_t)((const uint8_t *)r->at - r->input->data), "%s", what);
}

/* ---------------------------------------------------------------------------------------------- literals */

static void skip_blanks(reader *r)
{
    while (r->at < r->end && strchr(" \t\r\n", *r->at) && *r->at)
        r->at++;
}

/* If `c` is the next character of the header, consumes it and returns true. */
static bool take(reader *r, char c)
{
    skip_blanks(r);
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

/* Escapes are not supported, because NumPy never writes them in headers. */
static attn_status take_text(reader *r, char text[32])
{
    skip_blanks(r);
    char quote = r->at < r->end ? *r->at : '\0';
    if (quote != '\'' && quote != '"')
        return fail(r, ATTN_ERROR_FORMAT, "header: expected a quoted string");
    const char *begin = r->at + 1, *close = memchr(begin, quote, (size_t)(r->end - begin));
    if (!close || close - begin >= 32)
        return fail(r, ATTN_ERROR_FORMAT,
                    close ? "header: a string has more than 31 bytes, the limit" : "header: a string is not closed");
    memcpy(text, begin, (size_t)(close - begin));
    text[close - begin] = '\0';
    r->at = close + 1;
    return ATTN_OK;
}

static attn_status take_type(reader *r)
{
    static const struct {
        const char *name;
        attn__element element;
    } types[] = {
        {"f4", ATTN__F32}, {"f8", ATTN__F64}, {"f2", ATTN__F16}, {"i1", ATTN__I8},
        {"i2", ATTN__I16}, {"i4", ATTN__I32}, {"i8", ATTN__I64}, {"u1", ATTN__U8},
        {"u2", ATTN__U16}, {"u4", ATTN__U32}, {"u8", ATTN__U64}, {"b1", ATTN__BOOL},
    };
    char text[32] = "";
    if (r->at < r->end && *r->at == '[')
        return fail(r, ATTN_ERROR_UNSUPPORTED,
                    "header: elements of structured types are not supported; save one array for each field");
    attn_status status = take_text(r, text);
    if (status != ATTN_OK)
        return status;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (*text && strchr("<>|=", *text) && strcmp(text + 1, types[i].name) == 0) {
            r->array.element = types[i].element;
            r->array.swapped = *text == '>';
            r->has_type = true;
            return ATTN_OK;
        }
    }
    return attn__input_fail(
        r->input, ATTN_ERROR_UNSUPPORTED, (size_t)((const uint8_t *)r->at - r->input->data),
        "header: elements of type \"%s\" are not supported; supported: bool, integers, and reals of 16, 32 or 64 bits",
        text);
}

static bool take_word(reader *r, const char *word)
{
    size_t length = strlen(word);
    skip_blanks(r);
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length) != 0)
        return false;
    r->at += length;
    return true;
}

static attn_status take_order(reader *r)
{
    r->fortran = take_word(r, "True");
    r->has_order = r->fortran || take_word(r, "False");
    return r->has_order ? ATTN_OK : fail(r, ATTN_ERROR_FORMAT, "header: expected True or False as fortran_order");
}

static attn_status take_length(reader *r, int64_t *length)
{
    *length = 0;
    const char *begin = r->at;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
        if (*length > (INT64_MAX - 9) / 10)
            return fail(r, ATTN_ERROR_FORMAT, "header: a length overflows");
        *length = *length * 10 + (*r->at - '0');
    }
    if (r->at < r->end && *r->at == 'L')
        r->at++;
    return r->at > begin ? ATTN_OK : fail(r, ATTN_ERROR_FORMAT, "header: expected a length");
}

static attn_status take_shape(reader *r)
{
    r->array.rank = 0;
    r->has_shape = true;
    if (!take(r, '('))
        return fail(r, ATTN_ERROR_FORMAT, "header: expected '('");
    while (!take(r, ')')) {
        if (r->array.rank == ATTN_MAX_RANK)
            return fail(r, ATTN_ERROR_UNSUPPORTED, "header: the array has more than 8 axes, the limit");
        attn_status status = take_length(r, &r->array.shape[r->array.rank++]);
        if (status != ATTN_OK)
            return status;
        if (!take(r, ',') && (r->at == r->end || *r->at != ')'))
            return fail(r, ATTN_ERROR_FORMAT, "header: expected ',' or ')'");
    }
    return ATTN_OK;
}

static attn_status take_member(reader *r)
{
    char key[32];
    attn_status status = take_text(r, key);
    if (status != ATTN_OK)
        return status;
    if (!take(r, ':'))
        return fail(r, ATTN_ERROR_FORMAT, "header: expected ':'");
    skip_blanks(r);
    if (strcmp(key, "descr") == 0)
        return take_type(r);
    if (strcmp(key, "fortran_order") == 0)
        return take_order(r);
    if (strcmp(key, "shape") == 0)
        return take_shape(r);
    return fail(r, ATTN_ERROR_FORMAT, "header: expected the key descr, fortran_order or shape");
}

static attn_status take_dict(reader *r)
{
    if (!take(r, '{'))
        return fail(r, ATTN_ERROR_FORMAT, "header: expected {");
    while (!take(r, '}')) {
        attn_status status = take_member(r);
        if (status != ATTN_OK)
            return status;
        if (!take(r, ',') && (r->at == r->end || *r->at != '}'))
            return fail(r, ATTN_ERROR_FORMAT, "header: expected ',' or '}'");
    }
    skip_blanks(r);
    if (r->at != r->end)
        return fail(r, ATTN_ERROR_FORMAT, "header: found text behind the dict");
    if (!r->has_type || !r->has_order || !r->has_shape)
        return fail(r, ATTN_ERROR_FORMAT,
                    !r->has_type    ? "header: the key 'descr' is missing"
                    : !r->has_order ? "header: the key 'fortran_order' is missing"
                                    : "header: the key 'shape' is missing");
    return ATTN_OK;
}

/* --------------------------------------------------------------------------------------- the whole file */

static attn_status open_header(reader *r)
{
    const attn__input *input = r->input;
    if (input->size < 10 || memcmp(input->data, "\x93NUMPY", 6) != 0)
        return attn__input_fail(input, ATTN_ERROR_FORMAT, 0, "not a .npy file");
    unsigned version = input->data[6];
    if (version < 1 || version > 3)
        return attn__input_fail(input, ATTN_ERROR_UNSUPPORTED, 6, "version %u of the format is not supported", version);
    size_t begin = version == 1 ? 10 : 12;
    if (input->size < begin)
        return attn__input_fail(input, ATTN_ERROR_FORMAT, input->size, "the file ends within its header");
    size_t length = version == 1 ? attn__read_u16(input->data + 8) : attn__read_u32(input->data + 8);
    if (length > input->size - begin)
        return attn__input_fail(input, ATTN_ERROR_FORMAT, begin,
                                "the header needs %zu bytes, but the file ends after %zu", length, input->size - begin);
    r->at = (const char *)input->data + begin;
    r->end = r->at + length;
    return ATTN_OK;
}

/* Sets the strides of an array in Fortran order, where the first axis is contiguous. */
static void set_columns(attn__array *array)
{
    int64_t step = 1;
    for (int i = 0; i < array->rank; i++) {
        array->stride[i] = step;
        step *= array->shape[i] ? array->shape[i] : 1;
    }
}

static attn_status find_array(reader *r)
{
    attn_status status = open_header(r);
    if (status == ATTN_OK)
        status = take_dict(r);
    if (status != ATTN_OK)
        return status;
    size_t size = attn__array_set_rows(&r->array), begin = (size_t)((const uint8_t *)r->end - r->input->data);
    if (size > r->input->size - begin)
        return attn__input_fail(r->input, ATTN_ERROR_FORMAT, begin,
                                "the shape and the type need %zu bytes of data, but the file has %zu", size,
                                r->input->size - begin);
    if (size < r->input->size - begin)
        return attn__input_fail(r->input, ATTN_ERROR_FORMAT, begin + size,
                                "%zu bytes follow the last element; expected the end of the file",
                                r->input->size - begin - size);
    if (r->fortran)
        set_columns(&r->array);
    r->array.data = r->input->data + begin;
    return ATTN_OK;
}

attn_status attn__npy_find(attn__array *array, const attn__input *input)
{
    reader r = {.input = input};
    attn_status status = find_array(&r);
    *array = r.array;
    return status;
}

attn_status attn_npy_parse(attn_tensor **tensor, attn_context *context, const void *data, size_t size, const char *name)
{
    ATTN__CALL(context);
    static const attn_weights_options keep = {.keep_types = true};
    static char no_name[] = "array";
    attn__input input = {.context = context, .name = name, .data = data, .size = size};
    attn__arrays file = {.context = context, .file = name};
    attn__array array;
    *tensor = NULL;
    attn_status status = attn__npy_find(&array, &input);
    if (status != ATTN_OK)
        return status;
    array.name = no_name;
    attn_dtype dtype = attn__array_dtype(&array, &keep);
    return attn__array_to_tensor(tensor, &file, &array, dtype == ATTN_F16 ? ATTN_F32 : dtype);
}

attn_status attn_npy_read(attn_tensor **tensor, attn_context *context, const char *path)
{
    ATTN__CALL(context);
    attn__input input;
    *tensor = NULL;
    attn_status status = attn__file_map(&input, context, path);
    if (status == ATTN_OK)
        status = attn_npy_parse(tensor, context, input.data, input.size, path);
    if (status == ATTN_OK && (status = attn__file_unchanged(&input)) != ATTN_OK) {
        attn_tensor_destroy(*tensor);
        *tensor = NULL;
    }
    attn__file_unmap(&input);
    return status;
}
