/* SPDX-License-Identifier: MIT
 * JSON whose lists are too long for a tree: one element at a time. */
#include "base/downloaded.h"
#include "io/json.h"

#include <string.h>

enum { MAX_DEPTH = 16, MAX_VALUES = 1 << 20, MAX_TEXT = 1 << 28 };

typedef struct stream {
    const attn__input *text;
    size_t at;
    char key[64]; /* of the member that is read; cut where it is longer */
    int64_t index;
    attn__json_visit visit;
    void *user;
} stream;

static void skip_space(stream *s)
{
    while (s->at < s->text->size && strchr(" \t\r\n", s->text->data[s->at]) && s->text->data[s->at])
        s->at++;
}

static int peek(stream *s)
{
    skip_space(s);
    return s->at < s->text->size ? s->text->data[s->at] : -1;
}

static attn_status fail(const stream *s, size_t at, const char *what)
{
    return attn__input_fail(s->text, ATTN_ERROR_FORMAT, at, "%s%s%s", s->key, s->key[0] ? ": " : "", what);
}

/* One past the value that begins here, whatever is in it: what is no JSON is found when it is parsed. */
static attn_status find_end(const stream *s, size_t *end)
{
    const uint8_t *data = s->text->data;
    size_t at = s->at, values = 0;
    int level = 0;
    for (bool in_string = false; at < s->text->size; at++) {
        uint8_t c = data[at];
        if (c == '\\' && in_string) {
            at++;
        } else if (c == '"') {
            in_string = !in_string;
        } else if (!in_string) {
            bool closes = c == '}' || c == ']';
            if (level == 0 && (closes || c == ','))
                break;
            level += (c == '{' || c == '[') - closes;
            values += c == ',';
            if (level > MAX_DEPTH || values > MAX_VALUES || at - s->at > MAX_TEXT)
                return fail(s, at, level > MAX_DEPTH ? "nested too deep" : "too many values in one element");
        }
    }
    *end = at < s->text->size ? at : s->text->size;
    return ATTN_OK;
}

/* The value that begins here, parsed; the caller drops it. */
static attn_status read_value(stream *s, json_t **value)
{
    size_t end = 0;
    attn_status status = find_end(s, &end);
    if (status != ATTN_OK)
        return status;
    json_error_t error;
    *value = attn__json_load((const char *)s->text->data + s->at, end - s->at, JSON_DECODE_ANY, &error);
    if (!*value && json_error_code(&error) == json_error_out_of_memory)
        return attn__fail_memory(s->text->context, end - s->at);
    if (!*value)
        return fail(s, s->at + (size_t)error.position, error.text);
    s->at = end;
    return ATTN_OK;
}

static attn_status visit_value(stream *s, int64_t index)
{
    json_t *value = NULL;
    attn_status status = read_value(s, &value);
    if (status == ATTN_OK)
        status = s->visit(s->user, s->key, index, value);
    json_decref(value);
    return status;
}

/* Calls `one` for each of what stands between brackets; the first of these is here. */
static attn_status read_members(stream *s, char close, attn_status (*one)(stream *s))
{
    attn_status status = ATTN_OK;
    s->at++;
    if (peek(s) == close) {
        s->at++;
        return ATTN_OK;
    }
    while (status == ATTN_OK) {
        skip_space(s);
        status = one(s);
        if (status != ATTN_OK)
            return status;
        int next = peek(s);
        if (next != close && next != ',')
            return fail(s, s->at, next < 0 ? "the file ends here" : "expected a comma or a bracket");
        s->at++;
        if (next == close)
            return ATTN_OK;
    }
    return status;
}

static attn_status read_element(stream *s)
{
    return visit_value(s, s->index++);
}

static attn_status read_list(stream *s)
{
    s->index = 0;
    attn_status status = s->visit(s->user, s->key, 0, NULL);
    return status == ATTN_OK ? read_members(s, ']', read_element) : status;
}

static attn_status read_member(stream *s)
{
    s->key[0] = '\0';
    size_t from = s->at++, size = 0;
    if (s->text->data[from] != '"')
        return fail(s, from, "expected a name in quotes");
    while (s->at < s->text->size && s->text->data[s->at] != '"')
        s->at += s->text->data[s->at] == '\\' ? 2 : 1;
    if (s->at >= s->text->size)
        return fail(s, from, "the file ends within a name");
    size = s->at - from - 1 < sizeof s->key - 1 ? s->at - from - 1 : sizeof s->key - 1;
    for (size_t i = 0; i < size; i++)
        s->key[i] =
            (char)(s->text->data[from + 1 + i] > ' ' && s->text->data[from + 1 + i] < 127 ? s->text->data[from + 1 + i]
                                                                                          : '?');
    s->key[size] = '\0';
    s->at++;
    if (peek(s) != ':')
        return fail(s, s->at, "expected a colon");
    s->at++;
    return peek(s) == '[' ? read_list(s) : visit_value(s, -1);
}

attn_status attn__json_stream(const attn__input *text, attn__json_visit visit, void *user)
{
    stream s = {.text = text, .visit = visit, .user = user};
    attn_status status = attn__check_downloaded(text->context, text->name, text->data, text->size);
    if (status != ATTN_OK)
        return status;
    int first = peek(&s);
    if (first != '{' && first != '[')
        return fail(&s, s.at, first < 0 ? "the file is empty" : "neither an object, { ... }, nor a list, [ ... ]");
    status = first == '[' ? read_list(&s) : read_members(&s, '}', read_member);
    s.key[0] = '\0';
    if (status == ATTN_OK && peek(&s) >= 0)
        return fail(&s, s.at, "text behind the end");
    return status;
}
