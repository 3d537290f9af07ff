/* SPDX-License-Identifier: MIT
 * JSON text into a config. */
#include "io/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64, MAX_KEY = 1024 };

/* --------------------------------------------------------------------------------------------- parsing */

typedef struct place {
    int line, column;
} place;

static attn_status fail_at(const attn__input *text, place at, size_t offset, const char *what)
{
    if (offset > 0)
        return attn__fail(text->context, ATTN_ERROR_FORMAT, "%s: byte %zu: %s", text->name, offset, what);
    return attn__fail(text->context, ATTN_ERROR_FORMAT, "%s:%d:%d: %s", text->name, at.line, at.column, what);
}

/* Goes over the text once, strings apart, so that the parser, which recurses and takes some hundred bytes for
 * each value, is given nothing too deep or too rich. */
static attn_status check_bounds(const attn__input *text, int depth, size_t values, size_t offset)
{
    place at = {1, 0};
    int level = 0;
    size_t count = 0;
    bool in_string = false;
    for (size_t i = 0; i < text->size; i++) {
        char c = (char)text->data[i];
        at.column++;
        if (c == '\n')
            at = (place){at.line + 1, 0};
        else if (in_string && c == '\\')
            i++, at.column++;
        else if (c == '"')
            in_string = !in_string;
        if (in_string)
            continue;
        level += (c == '{' || c == '[') - (c == '}' || c == ']');
        count += c == '{' || c == '[' || c == ',';
        if (level > depth)
            return fail_at(text, at, offset ? offset + i : 0, "nested too deep");
        if (count > values)
            return fail_at(text, at, offset ? offset + i : 0, "too many values");
    }
    return ATTN_OK;
}

attn_status attn__json_parse(json_t **root, const attn__input *text, int depth, size_t values, size_t offset)
{
    enum { MAX_TEXT = 1 << 28 };
    *root = NULL;
    if (text->size > MAX_TEXT)
        return attn__fail(text->context, ATTN_ERROR_FORMAT, "%s: holds %zu bytes; no more than %d of JSON are read",
                          text->name, text->size, MAX_TEXT);
    attn_status status = check_bounds(text, depth, values, offset);
    if (status != ATTN_OK)
        return status;
    json_error_t error;
    *root = json_loadb(text->size ? (const char *)text->data : "", text->size, JSON_REJECT_DUPLICATES, &error);
    if (!*root && json_error_code(&error) == json_error_numeric_overflow) /* tokenizers write 10^30 for "no limit" */
        *root =
            json_loadb((const char *)text->data, text->size, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error);
    if (!*root && json_error_code(&error) == json_error_out_of_memory)
        return attn__fail_memory(text->context, text->size);
    if (!*root)
        return fail_at(text, (place){error.line, error.column}, offset ? offset + (size_t)error.position : 0,
                       error.text);
    if (!json_is_object(*root)) {
        json_decref(*root);
        *root = NULL;
        return fail_at(text, (place){1, 1}, offset, "must be an object, { ... }");
    }
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------- to values */

static bool all_of(const json_t *list, json_type type)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (json_typeof(json_array_get(list, i)) != type)
            return false;
    }
    return true;
}

static attn_status set_integers(const attn__input *text, const json_t *list, const char *key, attn_config *config)
{
    size_t n = json_array_size(list);
    int64_t *integers = attn__alloc(text->context, attn__size_mul(n, sizeof *integers));
    if (!integers)
        return ATTN_ERROR_MEMORY;
    for (size_t i = 0; i < n; i++)
        integers[i] = json_integer_value(json_array_get(list, i));
    attn_config_value value = {.type = ATTN_CONFIG_TYPE_INTS, .n = (int64_t)n, .integers = integers};
    attn_status status = attn_config_set(config, key, &value);
    attn__free(text->context, integers);
    return status;
}

static attn_status set_texts(const attn__input *text, const json_t *list, const char *key, attn_config *config)
{
    size_t n = json_array_size(list);
    const char **texts = attn__alloc(text->context, attn__size_mul(n, sizeof *texts));
    if (!texts)
        return ATTN_ERROR_MEMORY;
    for (size_t i = 0; i < n; i++)
        texts[i] = json_string_value(json_array_get(list, i));
    attn_config_value value = {.type = ATTN_CONFIG_TYPE_TEXTS, .n = (int64_t)n, .texts = texts};
    attn_status status = attn_config_set(config, key, &value);
    attn__free(text->context, texts);
    return status;
}

/* A list of lists of integers: each under "key.0", "key.1", ... */
static attn_status set_lists(const attn__input *text, const json_t *lists, const char *key, attn_config *config)
{
    char name[MAX_KEY + 24];
    attn_status status = ATTN_OK;
    for (size_t i = 0; i < json_array_size(lists) && status == ATTN_OK; i++) {
        const json_t *list = json_array_get(lists, i);
        snprintf(name, sizeof name, "%s.%zu", key, i);
        if (!all_of(list, JSON_INTEGER))
            return attn__fail(text->context, ATTN_ERROR_UNSUPPORTED,
                              "%s: key \"%s\": lists in lists must be of integers", text->name, name);
        status = attn_config_get(config, name)
                     ? attn__fail(text->context, ATTN_ERROR_FORMAT, "%s: key \"%.100s\": given twice", text->name, name)
                     : set_integers(text, list, name, config);
    }
    return status;
}

static attn_status set_list(const attn__input *text, const json_t *list, const char *key, attn_config *config)
{
    if (all_of(list, JSON_INTEGER))
        return set_integers(text, list, key, config);
    if (all_of(list, JSON_STRING))
        return set_texts(text, list, key, config);
    if (all_of(list, JSON_ARRAY))
        return set_lists(text, list, key, config);
    return attn__fail(text->context, ATTN_ERROR_UNSUPPORTED, "%s: key \"%s\": lists must be of integers or of texts",
                      text->name, key);
}

static attn_status set_scalar(const attn__input *text, const json_t *json, const char *key, attn_config *config)
{
    switch (json_typeof(json)) {
    case JSON_ARRAY:
        return set_list(text, json, key, config);
    case JSON_STRING:
        return attn_config_set_text(config, key, json_string_value(json));
    case JSON_INTEGER:
        return attn_config_set_int(config, key, json_integer_value(json));
    case JSON_REAL:
        return attn_config_set_real(config, key, json_real_value(json));
    case JSON_TRUE:
    case JSON_FALSE:
        return attn_config_set_bool(config, key, json_is_true(json));
    default:
        return attn_config_set(config, key, &(attn_config_value){.type = ATTN_CONFIG_TYPE_NULL});
    }
}

/* --------------------------------------------------------------------------------------------- walking */

/* An object that is being walked, and where its members' names begin in the key. */
typedef struct frame {
    json_t *object;
    void *member;
    size_t prefix;
} frame;

static attn_status fail_key(const attn__input *text, const char *key, const char *what)
{
    return attn__fail(text->context, ATTN_ERROR_FORMAT, "%s: key \"%.100s\": %s", text->name, key, what);
}

/* Writes the member's name behind the prefix. */
static attn_status name_member(const attn__input *text, const frame *f, char *key)
{
    const char *name = json_object_iter_key(f->member);
    size_t length = strlen(name);
    if (f->prefix + length + 2 > MAX_KEY)
        return fail_key(text, name, "longer than 1024 bytes with its objects' names");
    memcpy(key + f->prefix, name, length + 1);
    return ATTN_OK;
}

attn_status attn__json_to_config(const attn__input *text, const json_t *object, attn_config *config)
{
    char key[MAX_KEY];
    frame stack[MAX_DEPTH];
    int depth = 0;
    stack[0] = (frame){(json_t *)(uintptr_t)object, json_object_iter((json_t *)(uintptr_t)object), 0};
    while (depth >= 0) {
        frame *f = &stack[depth];
        if (!f->member) {
            depth--;
            continue;
        }
        attn_status status = name_member(text, f, key);
        json_t *value = json_object_iter_value(f->member);
        if (status != ATTN_OK)
            return status;
        f->member = json_object_iter_next(f->object, f->member);
        if (!json_is_object(value)) {
            /* A key with a dot may spell what an object inside spells too. */
            status = attn_config_get(config, key) ? fail_key(text, key, "given twice")
                                                  : set_scalar(text, value, key, config);
        } else if (++depth == MAX_DEPTH) {
            return fail_key(text, key, "nested too deep");
        } else {
            size_t length = strlen(key);
            key[length] = '.';
            stack[depth] = (frame){value, json_object_iter(value), length + 1};
        }
        if (status != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------ the config */

attn_status attn_config_parse(attn_config **config, attn_context *context, const char *text, size_t size,
                              const char *name)
{
    attn__call_begin(context);
    enum { MAX_VALUES = 1000000 };
    *config = NULL;
    attn__input input = {context, name, (const uint8_t *)text, size};
    json_t *root;
    attn_status status = attn__json_parse(&root, &input, MAX_DEPTH, MAX_VALUES, 0);
    if (status == ATTN_OK)
        status = attn_config_create(config, context);
    if (status == ATTN_OK)
        status = attn__json_to_config(&input, root, *config);
    if (status != ATTN_OK) {
        attn_config_destroy(*config);
        *config = NULL;
    }
    json_decref(root);
    return status;
}

attn_status attn_config_read(attn_config **config, attn_context *context, const char *path)
{
    attn__call_begin(context);
    enum { MAX_BYTES = 64 << 20 };
    *config = NULL;
    attn_bytes file;
    attn_status status = attn_file_read(&file, context, path, MAX_BYTES);
    if (status == ATTN_OK)
        status = attn_config_parse(config, context, file.data, file.size, path);
    attn_bytes_free(context, &file);
    return status;
}
