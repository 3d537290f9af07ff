/* SPDX-License-Identifier: MIT
 *
 * Reads YAML from the events of libyaml. Only mappings, sequences and scalars are read, which are enough for
 * settings. */
#include "io/yaml.h"

#ifdef ATTN_HAVE_YAML
#include "base/real.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { MOST_DEPTH = 16 };

typedef struct reading {
    const attn__input *text;
    yaml_parser_t parser;
    yaml_event_t event;
    int depth, most_depth;
    size_t values, most_values;
    json_t *open[MOST_DEPTH]; /* the open mappings and sequences; each is inside the one before */
    char *key[MOST_DEPTH];    /* if a mapping is open: the key of the next value; NULL: the next event is a key */
    char *anchor[MOST_DEPTH]; /* the anchors of the open mappings and sequences; NULL: none */
    json_t *anchored;         /* the values of all anchors that are complete */
    bool texts;               /* true: scalars are texts */
} reading;

static attn_status fail_at(const reading *r, const yaml_mark_t *at, const char *what)
{
    return attn__fail(r->text->context, ATTN_ERROR_FORMAT, "%s:%zu:%zu: %s", r->text->name, at->line + 1,
                      at->column + 1, what);
}

static attn_status refuse(const reading *r, const char *what)
{
    return fail_at(r, &r->event.start_mark, what);
}

static attn_status next(reading *r)
{
    yaml_event_delete(&r->event);
    if (yaml_parser_parse(&r->parser, &r->event))
        return ATTN_OK;
    if (r->parser.error == YAML_MEMORY_ERROR)
        return attn__fail_memory(r->text->context, r->text->size);
    return fail_at(r, &r->parser.problem_mark, r->parser.problem ? r->parser.problem : "not valid YAML");
}

/* ------------------------------------------------------------------------------------------ characters */

/* Private-use characters that replace, while parsing, characters that libyaml refuses or treats as line ends. yaml-cpp,
 * with which Marian writes vocabularies, does not escape these characters. In scalars, the original characters are
 * restored. */
enum { STAND_IN = 0x10fe00, OTHERS = STAND_IN + 0xf0, LAST = OTHERS + 5 };
static const uint32_t others[LAST - OTHERS] = {0x2028, 0x2029, 0xfeff, 0xfffe, 0xffff};

static uint32_t stand_in(uint32_t character)
{
    bool control = (character < 0x20 && character > 0 && character != '\t' && character != '\n' && character != '\r') ||
                   (character >= 0x7f && character < 0xa0);
    for (uint32_t i = 0; i < LAST - OTHERS; i++)
        if (character == others[i])
            return OTHERS + i;
    return control ? STAND_IN + character : character;
}

static uint32_t stood_for(uint32_t character)
{
    return character < STAND_IN || character >= LAST ? character
           : character >= OTHERS                     ? others[character - OTHERS]
                                                     : character - STAND_IN;
}

/* Replaces each character c of the text by replace(c). `out` may be the text itself if no character becomes longer.
 * Otherwise it needs four bytes for each character that is replaced. */
static size_t replace_all(const char *text, size_t size, uint32_t (*replace)(uint32_t character), char *out)
{
    size_t n = 0;
    for (size_t at = 0; at < size;) {
        uint32_t character;
        int length = attn__utf8_decode(text + at, text + size, &character);
        uint32_t other = length > 0 ? replace(character) : 0;
        if (length > 0 && other != character)
            n += (size_t)attn__utf8_encode(other, out + n);
        else
            out[n++] = text[at];
        for (int i = 1; i < length && other == character; i++)
            out[n++] = text[at + (size_t)i];
        at += length > 0 ? (size_t)length : 1;
    }
    return n;
}

/* Copies the text to *out, and replaces the characters that libyaml refuses or treats as line ends. A byte order mark
 * at the beginning is not replaced. The caller frees *out. */
static attn_status stand_in_all(const attn__input *text, char **out, size_t *size)
{
    const char *from = (const char *)text->data;
    size_t mark = text->size >= 3 && memcmp(from, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    for (size_t i = 0; i + 3 < text->size; i++)
        if (memcmp(from + i, "\xf4\x8f", 2) == 0 && text->data[i + 2] >= 0xb8)
            return attn__fail(text->context, ATTN_ERROR_UNSUPPORTED,
                              "%s: byte %zu: characters from U+10FE00 up, for private use, are not supported",
                              text->name, i);
    *out = attn__alloc(text->context, attn__size_add(attn__size_mul(text->size, 4), 1));
    if (!*out)
        return ATTN_ERROR_MEMORY;
    if (mark)
        memcpy(*out, from, mark);
    *size = mark + replace_all(from + mark, text->size - mark, stand_in, *out + mark);
    return ATTN_OK;
}

/* -------------------------------------------------------------------------------------------- scalars */

static bool is_one_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(text, *words) == 0)
            return true;
    return false;
}

/* Converts a scalar to a number if it is a decimal number of YAML's core schema. Returns NULL for other scalars. */
static json_t *number_of(const char *text)
{
    char *end;
    if (!text[0] || text[strspn(text, "+-.0123456789eE")] || !strpbrk(text, "0123456789"))
        return NULL;
    errno = 0;
    long long whole = strtoll(text, &end, 10);
    if (!*end && errno == 0)
        return json_integer(whole);
    double real = attn__real_of_text(text, &end);
    return *end ? NULL : json_real(real); /* json_real returns NULL if the number is not finite */
}

static json_t *scalar_of(const reading *r, const yaml_event_t *event)
{
    static const char *const yes[] = {"true", "True", "TRUE", NULL}, *const no[] = {"false", "False", "FALSE", NULL},
                             *const none[] = {"", "~", "null", "Null", "NULL", NULL};
    const char *text = (const char *)event->data.scalar.value;
    json_t *number = NULL;
    if (event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && !r->texts) {
        if (is_one_of(text, yes) || is_one_of(text, no))
            return json_boolean(is_one_of(text, yes));
        if (is_one_of(text, none))
            return json_null();
        number = number_of(text);
    }
    return number ? number : json_string(text);
}

/* --------------------------------------------------------------------------------------------- the tree */

static attn_status refuse_depth(const reading *r)
{
    char what[80];
    snprintf(what, sizeof what, "values are nested too deep; at most %d levels are supported", r->most_depth);
    return refuse(r, what);
}

/* Adds a value to the open mapping or sequence, which then owns the value. If this fails, the value is freed. */
static attn_status place(reading *r, json_t *value)
{
    int in = r->depth - 1;
    if (!value)
        return attn__fail_memory(r->text->context, r->text->size);
    if (++r->values > r->most_values) {
        char what[80];
        json_decref(value);
        snprintf(what, sizeof what, "there are too many values; at most %zu are supported", r->most_values);
        return refuse(r, what);
    }
    if (json_is_array(r->open[in]))
        return json_array_append_new(r->open[in], value) == 0 ? ATTN_OK
                                                              : attn__fail_memory(r->text->context, r->text->size);
    bool twice = json_object_get(r->open[in], r->key[in]) != NULL;
    int failed = twice ? 0 : json_object_set_new(r->open[in], r->key[in], value);
    if (twice)
        json_decref(value);
    attn__free(r->text->context, r->key[in]);
    r->key[in] = NULL;
    return twice    ? refuse(r, "this key is given twice")
           : failed ? attn__fail_memory(r->text->context, r->text->size)
                    : ATTN_OK;
}

/* Notes a value under its anchor. Without an anchor, does nothing. */
static attn_status note_anchor(reading *r, const char *anchor, json_t *value)
{
    if (!anchor)
        return ATTN_OK;
    if (!r->anchored)
        r->anchored = json_object();
    return r->anchored && json_object_set(r->anchored, anchor, value) == 0
               ? ATTN_OK
               : attn__fail_memory(r->text->context, r->text->size);
}

/* Counts the values inside a value, and returns the number of levels of mappings and sequences. */
static int measure(const json_t *value, size_t *values)
{
    const char *key;
    json_t *member;
    int levels = 0;
    for (size_t i = 0; i < json_array_size(value); i++, ++*values) {
        int inside = measure(json_array_get(value, i), values);
        levels = inside > levels ? inside : levels;
    }
    json_object_foreach((json_t *)value, key, member)
    {
        int inside = measure(member, values);
        levels = inside > levels ? inside : levels;
        ++*values;
    }
    return levels + (json_is_array(value) || json_is_object(value));
}

/* An alias counts as all values that it repeats. An alias of a value that is still open would be a value in itself. */
static attn_status take_alias(reading *r)
{
    json_t *value = json_object_get(r->anchored, (const char *)r->event.data.alias.anchor);
    if (r->depth + measure(value, &r->values) > r->most_depth)
        return refuse_depth(r);
    const bool is_key = json_is_object(r->open[r->depth - 1]) && !r->key[r->depth - 1];
    if (is_key)
        return refuse(r, "a key must be a scalar");
    return value ? place(r, json_incref(value))
                 : refuse(r, "the anchor of this alias is missing, or does not end before the alias");
}

static attn_status begin(reading *r, json_t *value, const yaml_char_t *anchor)
{
    if (r->depth >= r->most_depth) {
        json_decref(value);
        return refuse_depth(r);
    }
    if (r->depth > 0 && json_is_object(r->open[r->depth - 1]) && !r->key[r->depth - 1]) {
        json_decref(value);
        return refuse(r, "a key must be a scalar");
    }
    attn_status status = r->depth > 0 ? place(r, value)
                         : value      ? ATTN_OK
                                      : attn__fail_memory(r->text->context, r->text->size);
    if (status != ATTN_OK)
        return status;
    r->open[r->depth++] = value;
    if (anchor && !(r->anchor[r->depth - 1] = attn__strdup(r->text->context, (const char *)anchor)))
        return ATTN_ERROR_MEMORY;
    return ATTN_OK;
}

static attn_status end(reading *r)
{
    r->depth--;
    attn_status status = note_anchor(r, r->anchor[r->depth], r->open[r->depth]);
    attn__free(r->text->context, r->anchor[r->depth]);
    r->anchor[r->depth] = NULL;
    return status;
}

static attn_status take_scalar(reading *r)
{
    char *text = (char *)r->event.data.scalar.value;
    size_t *length = &r->event.data.scalar.length;
    *length = replace_all(text, *length, stood_for, text);
    text[*length] = '\0';
    if (strlen(text) != *length)
        return refuse(r, "a scalar has a zero byte");
    if (json_is_array(r->open[r->depth - 1]) || r->key[r->depth - 1]) {
        json_t *value = scalar_of(r, &r->event);
        attn_status status = value ? note_anchor(r, (const char *)r->event.data.scalar.anchor, value) : ATTN_OK;
        if (status != ATTN_OK)
            json_decref(value);
        return status == ATTN_OK ? place(r, value) : status;
    }
    if (strcmp(text, "<<") == 0 && r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
        return refuse(r, "merge keys (<<) are not supported");
    r->key[r->depth - 1] = attn__strdup(r->text->context, text);
    return r->key[r->depth - 1] ? ATTN_OK : ATTN_ERROR_MEMORY;
}

static bool is_tagged(const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return event->data.scalar.tag;
    case YAML_SEQUENCE_START_EVENT:
        return event->data.sequence_start.tag;
    case YAML_MAPPING_START_EVENT:
        return event->data.mapping_start.tag;
    default:
        return false;
    }
}

/* Reads all events of the root, from its begin to its end. */
static attn_status walk(reading *r, json_t **root)
{
    attn_status status = ATTN_OK;
    do {
        if (is_tagged(&r->event))
            status = refuse(r, "tags are not supported");
        else if (r->event.type == YAML_MAPPING_START_EVENT)
            status = begin(r, json_object(), r->event.data.mapping_start.anchor);
        else if (r->event.type == YAML_SEQUENCE_START_EVENT)
            status = begin(r, json_array(), r->event.data.sequence_start.anchor);
        else if (r->event.type == YAML_ALIAS_EVENT)
            status = take_alias(r);
        else if (r->event.type == YAML_SCALAR_EVENT)
            status = take_scalar(r);
        else
            status = end(r);
        if (!*root)
            *root = r->open[0];
        if (status == ATTN_OK)
            status = next(r);
    } while (status == ATTN_OK && r->depth > 0);
    return status;
}

static attn_status read_document(reading *r, json_t **root)
{
    attn_status status = next(r);
    while (status == ATTN_OK &&
           (r->event.type == YAML_STREAM_START_EVENT || r->event.type == YAML_DOCUMENT_START_EVENT))
        status = next(r);
    if (status == ATTN_OK && r->event.type != YAML_MAPPING_START_EVENT)
        return refuse(r, "expected a mapping, lines of KEY: VALUE");
    if (status == ATTN_OK)
        status = walk(r, root);
    if (status == ATTN_OK && r->event.type == YAML_DOCUMENT_END_EVENT)
        status = next(r);
    return status == ATTN_OK && r->event.type != YAML_STREAM_END_EVENT ? refuse(r, "a second document is not supported")
                                                                       : status;
}

static attn_status parse(json_t **root, const attn__input *text, int depth, size_t values, bool texts)
{
    reading r = {
        .text = text, .most_depth = depth < MOST_DEPTH ? depth : MOST_DEPTH, .most_values = values, .texts = texts};
    size_t size = 0;
    char *characters = NULL;
    *root = NULL;
    attn_status status = stand_in_all(text, &characters, &size);
    if (status != ATTN_OK)
        return status;
    if (!yaml_parser_initialize(&r.parser)) {
        attn__free(text->context, characters);
        return attn__fail_memory(text->context, sizeof r.parser);
    }
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)characters, size);
    status = read_document(&r, root);
    attn__free(text->context, characters);
    for (int i = 0; i < MOST_DEPTH; i++) {
        attn__free(text->context, r.key[i]);
        attn__free(text->context, r.anchor[i]);
    }
    json_decref(r.anchored);
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    if (status != ATTN_OK) {
        json_decref(*root);
        *root = NULL;
    }
    return status;
}

#else

static attn_status parse(json_t **root, const attn__input *text, int depth, size_t values, bool texts)
{
    (void)depth, (void)values, (void)texts;
    *root = NULL;
    return attn__fail(text->context, ATTN_ERROR_UNSUPPORTED, "%s: attn was built without libyaml, which reads YAML",
                      text->name);
}

#endif

attn_status attn__yaml_parse(json_t **root, const attn__input *text, int depth, size_t values)
{
    return parse(root, text, depth, values, false);
}

attn_status attn__yaml_parse_texts(json_t **root, const attn__input *text, int depth, size_t values)
{
    return parse(root, text, depth, values, true);
}
