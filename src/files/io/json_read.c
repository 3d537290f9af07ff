/* SPDX-License-Identifier: MIT */
#include "io/json.h"
#include "base/downloaded.h"

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

/* Checks that the text is not nested too deep and does not have too many values. This is done in one scan before
 * parsing, because the parser recurses and uses hundreds of bytes per value. */
static attn_status check_bounds(const attn__input *text, int depth, size_t values, size_t offset)
{
    place at = {1, 0};
    int level = 0;
    size_t count = 0;
    bool in_string = false;
    char what[80] = "";
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
            snprintf(what, sizeof what, "values are nested too deep; at most %d levels are supported", depth);
        else if (count > values)
            snprintf(what, sizeof what, "there are too many values; at most %zu are supported", values);
        if (what[0])
            return fail_at(text, at, offset ? offset + i : 0, what);
    }
    return ATTN_OK;
}

json_t *attn__json_load(const char *text, size_t size, size_t flags, json_error_t *error)
{
    json_t *root = json_loadb(text, size, flags | JSON_REJECT_DUPLICATES, error);
    /* parse again with large integers as reals, because tokenizer files have 10^30 for "no limit" */
    if (!root && json_error_code(error) == json_error_numeric_overflow)
        root = json_loadb(text, size, flags | JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, error);
    return root;
}

attn_status attn__json_parse(json_t **root, const attn__input *text, int depth, size_t values, size_t offset)
{
    enum { MAX_TEXT = 1 << 28 };
    *root = NULL;
    if (text->size > MAX_TEXT)
        return attn__fail(text->context, ATTN_ERROR_FORMAT, "%s: the JSON has %zu bytes; at most %d are supported",
                          text->name, text->size, MAX_TEXT);
    attn_status status = offset ? ATTN_OK : attn__check_downloaded(text->context, text->name, text->data, text->size);
    if (status == ATTN_OK)
        status = check_bounds(text, depth, values, offset);
    if (status != ATTN_OK)
        return status;
    json_error_t error;
    *root = attn__json_load(text->size ? (const char *)text->data : "", text->size, 0, &error);
    if (!*root && json_error_code(&error) == json_error_out_of_memory)
        return attn__fail_memory(text->context, text->size);
    if (!*root)
        return fail_at(text, (place){error.line, error.column}, offset ? offset + (size_t)error.position : 0,
                       error.text);
    if (!json_is_object(*root)) {
        json_decref(*root);
        *root = NULL;
        return fail_at(text, (place){1, 1}, offset, "the JSON must be an object, { ... }");
    }
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------- to values */

static bool all_of(const json_t *list, json_type type)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_typeof(json_array_get(list, i)) != type)
            return false;
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

static attn_status set_scalar(const attn__input *text, const json_t *json, const char *key, attn_config *config)
{
    switch (json_typeof(json)) {
    case JSON_ARRAY:
        return all_of(json, JSON_INTEGER) ? set_integers(text, json, key, config) : set_texts(text, json, key, config);
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

/* An object or a list that is being visited. `prefix` is the length of its name, with which its members' names
 * begin. */
typedef struct frame {
    json_t *json;
    void *member; /* if this is an object: its next member */
    size_t index; /* if this is a list: the index of its next element */
    size_t prefix;
} frame;

static frame frame_of(const json_t *json, size_t prefix)
{
    json_t *own = (json_t *)(uintptr_t)json;
    return (frame){.json = own, .member = json_object_iter(own), .prefix = prefix};
}

static attn_status fail_key(const attn__input *text, const char *key, const char *what)
{
    return attn__fail(text->context, ATTN_ERROR_FORMAT, "%s: key \"%.100s\" %s", text->name, key, what);
}

/* Reports that a name is too long to be appended to the prefix in `key`, which is the name of the object or list around
 * it and a dot. */
static attn_status fail_length(const attn__input *text, const char *name, const char *key, size_t prefix)
{
    if (prefix == 0)
        return attn__fail(text->context, ATTN_ERROR_FORMAT,
                          "%s: key \"%.100s\" has %zu bytes; at most %d are supported", text->name, name, strlen(name),
                          MAX_KEY - 2);
    return attn__fail(text->context, ATTN_ERROR_FORMAT,
                      "%s: the keys \"%.*s\" and \"%.100s\", joined by a dot, have %zu bytes; at most %d are supported",
                      text->name, prefix > 100 ? 100 : (int)prefix - 1, key, name, prefix + strlen(name), MAX_KEY - 2);
}

/* Gets the next member or element and appends its name to the prefix in `key`. After the last one, *value is NULL. */
static attn_status next_member(const attn__input *text, frame *f, char *key, json_t **value)
{
    char number[24];
    const char *name = number;
    *value = json_is_object(f->json) ? json_object_iter_value(f->member) : json_array_get(f->json, f->index);
    if (!*value)
        return ATTN_OK;
    snprintf(number, sizeof number, "%zu", f->index++);
    if (json_is_object(f->json)) {
        name = json_object_iter_key(f->member);
        f->member = json_object_iter_next(f->json, f->member);
    }
    size_t length = strlen(name);
    if (f->prefix + length + 2 > MAX_KEY)
        return fail_length(text, name, key, f->prefix);
    memcpy(key + f->prefix, name, length + 1);
    return ATTN_OK;
}

/* Returns whether a value is stored as several keys. An object and most lists get one key per member or element. A list
 * of integers or a list of texts is stored as one value. */
static bool has_members(const json_t *value)
{
    return json_is_object(value) ||
           (json_is_array(value) && !all_of(value, JSON_INTEGER) && !all_of(value, JSON_STRING));
}

attn_status attn__json_to_config(const attn__input *text, const json_t *object, attn_config *config)
{
    char key[MAX_KEY];
    frame stack[MAX_DEPTH] = {frame_of(object, 0)};
    int depth = 0;
    while (depth >= 0) {
        json_t *value;
        attn_status status = next_member(text, &stack[depth], key, &value);
        if (status == ATTN_OK && !value) {
            depth--;
        } else if (status == ATTN_OK && !has_members(value)) {
            /* a key may occur twice, because a key with a dot, "a.b", equals the name of the member b of a */
            status = attn_config_get(config, key) ? fail_key(text, key, "is given twice")
                                                  : set_scalar(text, value, key, config);
        } else if (status == ATTN_OK && ++depth == MAX_DEPTH) {
            return fail_key(text, key, "is nested too deep; at most 64 levels are supported");
        } else if (status == ATTN_OK) {
            size_t length = strlen(key);
            key[length] = '.';
            stack[depth] = frame_of(value, length + 1);
        }
        if (status != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------ the config */

static bool fits_64_bits(const char *digits, size_t n)
{
    static const char most[] = "9223372036854775807";
    return n < sizeof most - 1 || (n == sizeof most - 1 && memcmp(digits, most, n) <= 0);
}

/* Copies the text to `out`. Appends "e0" to integers that do not fit in 64 bits, so that jansson reads them as reals
 * instead of refusing them. Tokenizer files of Hugging Face have such an integer as maximum length. The copy may need
 * an eighth more space. */
static size_t widen(const attn__input *text, char *out)
{
    const char *at = (const char *)text->data, *end = at + text->size;
    bool in_string = false;
    size_t n = 0;
    while (at < end) {
        size_t digits = 0;
        while (!in_string && at + digits < end && at[digits] >= '0' && at[digits] <= '9')
            digits++;
        size_t size = digits ? digits : in_string && *at == '\\' && end - at > 1 ? 2 : 1;
        bool behind_dot = n > 0 && strchr(".eE+", out[n - 1]),
             before_dot = end - at > (int64_t)size && strchr(".eE", at[size]);
        in_string ^= *at == '"';
        memcpy(out + n, at, size);
        n += size;
        if (!behind_dot && !before_dot && !fits_64_bits(at, digits)) {
            out[n++] = 'e';
            out[n++] = '0';
        }
        at += size;
    }
    return n;
}

attn_status attn_config_parse(attn_config **config, attn_context *context, const char *text, size_t size,
                              const char *name)
{
    ATTN__CALL(context);
    enum { MAX_VALUES = 1000000 };
    *config = NULL;
    attn__input input = {.context = context, .name = name, .data = (const uint8_t *)text, .size = size};
    json_t *root = NULL;
    char *wide = attn__alloc(context, attn__size_add(size, size / 8));
    if (!wide)
        return ATTN_ERROR_MEMORY;
    input.size = widen(&input, wide);
    input.data = (const uint8_t *)wide;
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
    attn__free(context, wide);
    return status;
}

attn_status attn_config_read(attn_config **config, attn_context *context, const char *path)
{
    ATTN__CALL(context);
    enum { MAX_BYTES = 64 << 20 };
    *config = NULL;
    attn_bytes file;
    attn_status status = attn_file_read(&file, context, path, MAX_BYTES);
    if (status == ATTN_OK)
        status = attn_config_parse(config, context, file.data, file.size, path);
    attn_bytes_free(context, &file);
    return status;
}
