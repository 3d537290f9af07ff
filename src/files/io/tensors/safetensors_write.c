/* SPDX-License-Identifier: MIT */
#include "io/file.h"
#include "io/tensors/weights.h"
#include "io/json_writer.h"
#include "tensor/tensor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

enum { ALIGN = 64 };

static const char *type_name(attn_dtype dtype)
{
    static const char *const names[] = {
        [ATTN_F32] = "F32", [ATTN_BF16] = "BF16", [ATTN_F64] = "F64", [ATTN_F16] = "F16",
        [ATTN_I32] = "I32", [ATTN_I64] = "I64",   [ATTN_U8] = "U8",   [ATTN_BOOL] = "BOOL",
    };
    return names[dtype];
}

static size_t tensor_bytes(const attn_tensor *tensor)
{
    return (size_t)attn_tensor_size(tensor) * attn_dtype_size(attn_tensor_dtype(tensor));
}

/* Writes a value of the metadata as a text, because the format allows only texts. Other values are written as JSON in
 * the text. */
static void write_as_text(attn_json *json, const char *key, const attn_config_value *value)
{
    attn_json inner;
    const char *text;
    attn_json_begin(&inner, json->context, false);
    attn_json_value(&inner, NULL, value);
    if (attn_json_finish(&inner, &text) == ATTN_OK) {
        inner.out.data[inner.out.size - 1] = '\0'; /* remove the newline at the end of the JSON text */
        attn_json_text(json, key, text);
    } else {
        json->status = inner.status;
    }
    attn_json_free(&inner);
}

static void write_metadata(attn_json *json, const attn_config *metadata)
{
    attn_json_object(json, "__metadata__");
    for (int64_t i = 0; i < attn_config_size(metadata); i++) {
        const char *key = attn_config_key(metadata, i);
        const attn_config_value *value = attn_config_get(metadata, key);
        if (value->type == ATTN_CONFIG_TYPE_TEXT)
            attn_json_text(json, key, value->text);
        else
            write_as_text(json, key, value);
    }
    attn_json_end(json);
}

static void write_tensor(attn_json *json, const attn_named *named, bool int8, size_t offset)
{
    const attn_tensor *tensor = named->tensor;
    attn_config_value shape = {
        .type = ATTN_CONFIG_TYPE_INTS, .n = attn_tensor_rank(tensor), .integers = attn_tensor_shape(tensor)};
    attn_json_object(json, named->name);
    attn_json_text(json, "dtype", int8 ? "I8" : type_name(attn_tensor_dtype(tensor)));
    attn_json_value(json, "shape", &shape);
    attn_json_array(json, "data_offsets");
    attn_json_int(json, NULL, (int64_t)offset);
    attn_json_int(json, NULL, (int64_t)(offset + tensor_bytes(tensor)));
    attn_json_end(json);
    attn_json_end(json);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Checks that each tensor has data and that no name occurs twice. The names are sorted first, so that equal names are
 * neighbours. */
static attn_status check_tensors(const attn_named_list *list)
{
    const char **names = attn__alloc(list->context, attn__size_mul((size_t)list->n, sizeof *names));
    if (!names)
        return ATTN_ERROR_MEMORY;
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < list->n; i++)
        names[i] = list->items[i].name;
    if (list->n > 0)
        qsort(names, (size_t)list->n, sizeof *names, by_text);
    for (int64_t i = 0; i < list->n && status == ATTN_OK; i++) {
        bool reserved = strcmp(names[i], "__metadata__") == 0;
        if (reserved || (i > 0 && strcmp(names[i - 1], names[i]) == 0))
            status =
                attn__fail(list->context, ATTN_ERROR_ARGUMENT, "two tensors cannot both be named \"%.200s\"", names[i]);
    }
    for (int64_t i = 0; i < list->n && status == ATTN_OK; i++)
        status = attn__tensor_must_have_data(list->context, list->items[i].tensor, list->items[i].name);
    attn__free(list->context, names);
    return status;
}

/* The header is padded with spaces, so that the tensors begin at a multiple of 64 bytes, and programs that map the file
 * can use them without a copy. */
static attn_status write_file(const attn_named_list *list, const char *path, const char *header, size_t size)
{
    attn__output output;
    uint8_t length[8];
    char spaces[ALIGN];
    size_t padding = (ALIGN - (8 + size) % ALIGN) % ALIGN;
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)(size + padding) >> 8 * i);
    memset(spaces, ' ', sizeof spaces);
    attn__output_begin(&output, list->context, path);
    attn__output_write(&output, length, sizeof length);
    attn__output_write(&output, header, size);
    attn__output_write(&output, spaces, padding);
    for (int64_t i = 0; i < list->n; i++)
        attn__output_write(&output, attn_tensor_data(list->items[i].tensor), tensor_bytes(list->items[i].tensor));
    return attn__output_end(&output);
}

attn_status attn__safetensors_write(const attn_named_list *list, const bool *int8, const char *path,
                                    const attn_config *metadata)
{
    attn_status status = check_tensors(list);
    if (status != ATTN_OK)
        return status;
    attn_json json;
    const char *header;
    size_t offset = 0;
    attn_json_begin(&json, list->context, false);
    attn_json_object(&json, NULL);
    if (metadata)
        write_metadata(&json, metadata);
    for (int64_t i = 0; i < list->n; i++) {
        write_tensor(&json, &list->items[i], int8 && int8[i], offset);
        offset += tensor_bytes(list->items[i].tensor);
    }
    attn_json_end(&json);
    status = attn_json_finish(&json, &header);
    if (status == ATTN_OK)
        status = write_file(list, path, header, json.out.size - 1);
    attn_json_free(&json);
    return status;
}

attn_status attn_safetensors_write(const attn_named_list *list, const char *path, const attn_config *metadata)
{
    ATTN__CALL(list->context);
    return attn__safetensors_write(list, NULL, path, metadata);
}
