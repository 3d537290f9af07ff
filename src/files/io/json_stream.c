/* SPDX-License-Identifier: MIT
 *
 * Parses JSON one element at a time, for lists that are too long to be kept in memory as a tree. */
#include "base/downloaded.h"
#include "io/json.h"

#include <stdio.h>
#include <string.h>

enum { MAX_DEPTH = 16, MAX_VALUES = 1 << 20, MAX_TEXT = 1 << 28 };

typedef struct stream {
    const attn__input *text;
    size_t at;
    char key[64]; /* name of the current member; a longer name is cut */
    int64_t index;
    const char *skip; /* name of the members of list elements that are not parsed; NULL: all members are parsed */
    char *copy;       /* copy of an element, in which the values of the members named `skip` are replaced by 0 */
    size_t room;
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

/* The end of an element's text, and the begin and end of the value in it that is not parsed. */
typedef struct extent {
    size_t end, skip, skip_end;
} extent;

/* Called after the name of a member was read. The name begins at `name`, and `at` is the offset after it. If members of
 * this name are not parsed, notes where the member's value begins. */
static void note_member(const stream *s, size_t name, size_t at, extent *e)
{
    size_t size = s->skip ? strlen(s->skip) : 0;
    if (size > 0 && e->skip == 0 && at - name > size + 1 && s->text->data[name + size + 1] == '"' &&
        memcmp(s->text->data + name + 1, s->skip, size) == 0)
        e->skip = at + 1;
}

/* Finds the end of the value that begins at s->at. Invalid JSON is not detected here, but when the value is parsed. */
static attn_status find_end(const stream *s, extent *e)
{
    const uint8_t *data = s->text->data;
    size_t at = s->at, values = 0, name = 0;
    int level = 0;
    *e = (extent){0};
    for (; at < s->text->size; at++) {
        uint8_t c = data[at];
        if (c == '"') {
            name = at++;
            while (at < s->text->size && data[at] != '"')
                at += data[at] == '\\' ? 2 : 1;
            continue;
        }
        bool opens = c == '{' || c == '[', closes = c == '}' || c == ']';
        if (level == 0 && (closes || c == ','))
            break;
        if (level == 1 && (closes || c == ',') && e->skip > 0 && e->skip_end == 0)
            e->skip_end = at;
        if (level == 1 && c == ':')
            note_member(s, name, at, e);
        level += opens - closes;
        values += c == ',' && (level != 1 || e->skip == 0 || e->skip_end > 0);
        if (level > MAX_DEPTH || values > MAX_VALUES || at - s->at > MAX_TEXT)
            return fail(s, at,
                        level > MAX_DEPTH     ? "values are nested too deep; at most 16 levels are supported"
                        : values > MAX_VALUES ? "one element has too many values; at most 1048576 are supported"
                                              : "one element is too long; at most 268435456 bytes are supported");
    }
    e->end = at < s->text->size ? at : s->text->size;
    return ATTN_OK;
}

/* Copies an element to s->copy. The value that is not parsed is replaced by 0. */
static attn_status cut(stream *s, const extent *e, size_t *size)
{
    size_t before = e->skip - s->at, behind = e->end - e->skip_end;
    *size = before + 1 + behind;
    if (s->room < *size) {
        char *copy = attn__realloc(s->text->context, s->copy, 2 * *size);
        if (!copy)
            return ATTN_ERROR_MEMORY;
        s->copy = copy;
        s->room = 2 * *size;
    }
    memcpy(s->copy, s->text->data + s->at, before);
    s->copy[before] = '0';
    memcpy(s->copy + before + 1, s->text->data + e->skip_end, behind);
    return ATTN_OK;
}

static attn_status read_value(stream *s, json_t **value)
{
    extent e;
    attn_status status = find_end(s, &e);
    if (status != ATTN_OK)
        return status;
    size_t size = e.end - s->at;
    const char *text = (const char *)s->text->data + s->at;
    if (e.skip_end > e.skip) {
        status = cut(s, &e, &size);
        text = s->copy;
    }
    if (status != ATTN_OK)
        return status;
    json_error_t error;
    *value = attn__json_load(text, size, JSON_DECODE_ANY, &error);
    if (!*value && json_error_code(&error) == json_error_out_of_memory)
        return attn__fail_memory(s->text->context, size);
    /* offset of the error in the parsed text, which may be s->copy */
    size_t place = (size_t)error.position;
    if (!*value && text == s->copy && place > e.skip - s->at)
        place += e.skip_end - e.skip - 1;
    if (!*value)
        return fail(s, s->at + place, error.text);
    s->at = e.end;
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

/* Reports that the value before s->at is followed by neither a comma nor the bracket `close`. */
static attn_status fail_separator(const stream *s, int found, char close)
{
    char what[80];
    if (found < 0)
        return fail(s, s->at, close == ']' ? "the file ends within a list" : "the file ends within an object");
    snprintf(what, sizeof what,
             found > ' ' && found < 127 ? "expected ',' or '%c', found '%c'"
                                        : "expected ',' or '%c', found the byte 0x%02x",
             close, found);
    return fail(s, s->at, what);
}

/* Calls one(s) for each value between the opening bracket at s->at and the bracket `close`. */
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
            return fail_separator(s, next, close);
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

/* Stores the name of a member in s->key, for comparisons and messages. Characters that are not printable become '?',
 * and a long name is cut. */
static void keep_key(stream *s, const uint8_t *name, size_t size)
{
    size = size < sizeof s->key ? size : sizeof s->key - 1;
    for (size_t i = 0; i < size; i++)
        s->key[i] = name[i] > ' ' && name[i] < 127 ? (char)name[i] : '?';
    s->key[size] = '\0';
}

static attn_status read_member(stream *s)
{
    s->key[0] = '\0';
    size_t from = s->at++;
    if (from >= s->text->size || s->text->data[from] != '"')
        return fail(s, from, "expected a name in quotes");
    while (s->at < s->text->size && s->text->data[s->at] != '"')
        s->at += s->text->data[s->at] == '\\' ? 2 : 1;
    if (s->at >= s->text->size)
        return fail(s, from, "the file ends within a name");
    keep_key(s, s->text->data + from + 1, s->at - from - 1);
    s->at++;
    if (peek(s) != ':')
        return fail(s, s->at, "expected a colon");
    s->at++;
    return peek(s) == '[' ? read_list(s) : visit_value(s, -1);
}

static attn_status read_text(stream *s)
{
    int first = peek(s);
    if (first != '{' && first != '[')
        return fail(s, s->at, first < 0 ? "the file is empty" : "expected an object, { ... }, or a list, [ ... ]");
    attn_status status = first == '[' ? read_list(s) : read_members(s, '}', read_member);
    s->key[0] = '\0';
    if (status == ATTN_OK && peek(s) >= 0)
        return fail(s, s->at, "found text behind the end of the JSON");
    return status;
}

attn_status attn__json_stream(const attn__input *text, const char *skip, attn__json_visit visit, void *user)
{
    stream s = {.text = text, .skip = skip, .visit = visit, .user = user};
    attn_status status = attn__check_downloaded(text->context, text->name, text->data, text->size);
    if (status == ATTN_OK)
        status = read_text(&s);
    attn__free(text->context, s.copy);
    return status;
}
