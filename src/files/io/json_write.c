/* SPDX-License-Identifier: MIT
 * Writes JSON. */
#include "base/real.h"
#include "base/utf8.h"
#include "io/input.h"
#include "io/json_writer.h"
#include "io/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put(attn_json *json, const char *text, size_t size)
{
    if (json->status == ATTN_OK)
        json->status = attn__bytes_append(json->context, &json->out, text, size);
}

static void put_text(attn_json *json, const char *text)
{
    put(json, text, strlen(text));
}

static void misuse(attn_json *json, const char *what)
{
    if (json->status == ATTN_OK)
        json->status = attn__fail(json->context, ATTN_ERROR_ARGUMENT, "JSON writer: %s", what);
}

static void new_line(attn_json *json)
{
    if (!json->pretty)
        return;
    put(json, "\n", 1);
    for (int i = 0; i < json->depth; i++)
        put(json, "  ", 2);
}

/* ---------------------------------------------------------------------------------------------- values */

/* Writes the escape sequence of a quote, a backslash or a control character. Control characters are escaped because
 * they could control a terminal. */
static void put_escape(attn_json *json, unsigned char c)
{
    static const char letters[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    for (const char *p = letters; *p; p += 2) {
        if ((unsigned char)*p == c) {
            put(json, "\\", 1);
            put(json, p + 1, 1);
            return;
        }
    }
    char escape[8];
    snprintf(escape, sizeof escape, "\\u%04x", c);
    put_text(json, escape);
}

static void put_string(attn_json *json, const char *text)
{
    const char *end = text + strlen(text), *plain = text;
    put(json, "\"", 1);
    for (const char *p = text; p < end;) {
        uint32_t code;
        int n = attn__utf8_decode(p, end, &code);
        bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
        if (n > 0 && !control && code != '"' && code != '\\') {
            p += n;
            continue;
        }
        put(json, plain, (size_t)(p - plain));
        if (n == 0)
            put_text(json, "\xef\xbf\xbd");
        else
            put_escape(json, (unsigned char)code);
        p += n > 0 ? n : 1;
        plain = p;
    }
    put(json, plain, (size_t)(end - plain));
    put(json, "\"", 1);
}

static void put_int(attn_json *json, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    put_text(json, text);
}

/* Writes a real with as few digits as possible, so that reading gives the same value. The text always has a point or
 * an exponent, so that it is read as a real and not as an integer. */
static void put_real(attn_json *json, double value)
{
    if (!isfinite(value)) {
        put_text(json, "null");
        return;
    }
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    attn__text_points(text);
    put_text(json, text);
    if (!strpbrk(text, ".e"))
        put_text(json, ".0");
}

/* ------------------------------------------------------------------------------------------- structure */

/* Writes what precedes a value: the comma, the line break and the key. */
static void begin_value(attn_json *json, const char *key)
{
    bool in_object = json->depth > 0 && json->closing[json->depth - 1] == '}';
    if (in_object != (key != NULL))
        misuse(json, in_object ? "a member needs a key" : "a key is given outside of an object");
    if (json->depth == 0 && json->filled[0])
        misuse(json, "a second value follows the first; a text has one value");
    if (json->filled[json->depth])
        put(json, ",", 1);
    json->filled[json->depth] = true;
    if (json->depth > 0)
        new_line(json);
    if (key) {
        put_string(json, key);
        put_text(json, json->pretty ? ": " : ":");
    }
}

static void open_group(attn_json *json, const char *key, const char *brackets)
{
    begin_value(json, key);
    put(json, brackets, 1);
    if (json->depth == ATTN_JSON_DEPTH) {
        misuse(json, "values are nested too deep; at most 32 levels are supported");
        return;
    }
    json->closing[json->depth++] = brackets[1];
    json->filled[json->depth] = false;
}

void attn_json_begin(attn_json *json, attn_context *context, bool pretty)
{
    *json = (attn_json){.context = context, .pretty = pretty};
}

void attn_json_object(attn_json *json, const char *key)
{
    open_group(json, key, "{}");
}

void attn_json_array(attn_json *json, const char *key)
{
    open_group(json, key, "[]");
}

void attn_json_end(attn_json *json)
{
    if (json->depth == 0) {
        misuse(json, "attn_json_end was called without an open object or array");
        return;
    }
    bool filled = json->filled[json->depth];
    json->depth--;
    if (filled)
        new_line(json);
    put(json, &json->closing[json->depth], 1);
}

void attn_json_text(attn_json *json, const char *key, const char *value)
{
    begin_value(json, key);
    if (value)
        put_string(json, value);
    else
        put_text(json, "null");
}

void attn_json_int(attn_json *json, const char *key, int64_t value)
{
    begin_value(json, key);
    put_int(json, value);
}

void attn_json_real(attn_json *json, const char *key, double value)
{
    begin_value(json, key);
    put_real(json, value);
}

void attn_json_bool(attn_json *json, const char *key, bool value)
{
    begin_value(json, key);
    put_text(json, value ? "true" : "false");
}

void attn_json_null(attn_json *json, const char *key)
{
    begin_value(json, key);
    put_text(json, "null");
}

static void put_integers(attn_json *json, const char *key, const attn_config_value *value)
{
    begin_value(json, key);
    put(json, "[", 1);
    for (int64_t i = 0; i < value->n; i++) {
        if (i > 0)
            put_text(json, json->pretty ? ", " : ",");
        put_int(json, value->integers[i]);
    }
    put(json, "]", 1);
}

void attn_json_value(attn_json *json, const char *key, const attn_config_value *value)
{
    switch (value->type) {
    case ATTN_CONFIG_TYPE_NULL:
        attn_json_null(json, key);
        break;
    case ATTN_CONFIG_TYPE_BOOL:
        attn_json_bool(json, key, value->boolean);
        break;
    case ATTN_CONFIG_TYPE_INT:
        attn_json_int(json, key, value->integer);
        break;
    case ATTN_CONFIG_TYPE_REAL:
        attn_json_real(json, key, value->real);
        break;
    case ATTN_CONFIG_TYPE_TEXT:
        attn_json_text(json, key, value->text);
        break;
    case ATTN_CONFIG_TYPE_INTS:
        put_integers(json, key, value);
        break;
    case ATTN_CONFIG_TYPE_REALS:
        attn_json_array(json, key);
        for (int64_t i = 0; i < value->n; i++)
            attn_json_real(json, NULL, value->reals[i]);
        attn_json_end(json);
        break;
    case ATTN_CONFIG_TYPE_TEXTS:
        attn_json_array(json, key);
        for (int64_t i = 0; i < value->n; i++)
            attn_json_text(json, NULL, value->texts[i]);
        attn_json_end(json);
        break;
    }
}

void attn_json_config(attn_json *json, const char *key, const attn_config *config)
{
    attn_json_object(json, key);
    for (int64_t i = 0; i < attn_config_size(config); i++) {
        const char *name = attn_config_key(config, i);
        attn_json_value(json, name, attn_config_get(config, name));
    }
    attn_json_end(json);
}

attn_status attn_json_finish(attn_json *json, const char **text)
{
    *text = NULL;
    if (json->depth > 0 || !json->filled[0])
        misuse(json, json->depth > 0 ? "an object or array is still open" : "no value was written");
    put(json, "\n", 1);
    if (json->status == ATTN_OK)
        *text = json->out.data;
    return json->status;
}

void attn_json_free(attn_json *json)
{
    attn_bytes_free(json->context, &json->out);
}

attn_status attn_config_write(const attn_config *config, attn_context *context, const char *path)
{
    ATTN__CALL(context);
    attn_json json;
    const char *text;
    attn_json_begin(&json, context, true);
    attn_json_config(&json, NULL, config);
    attn_status status = attn_json_finish(&json, &text);
    if (status == ATTN_OK)
        status = attn_file_write(context, path, text, json.out.size);
    attn_json_free(&json);
    return status;
}
