/* SPDX-License-Identifier: MIT
 *
 * Reads settings of a MarianMT model's tokenizer: the added tokens, and how decoded text is cleaned up.
 */
#include "apps/checkpoint/marian.h"

#include "apps/checkpoint/model_directory.h"
#include "base/context.h"
#include "io/directory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 64 << 20, MOST_VALUES = 1 << 20, DEPTH = 16 };

/* Parses a JSON file of a directory. If the file does not exist, *root is NULL. */
static attn_status read_json(json_t **root, attn_context *context, const char *directory, const char *name)
{
    char path[ATTN__PATH];
    attn_bytes bytes = {0};
    *root = NULL;
    attn_status status = attn__path(context, path, directory, name);
    if (status != ATTN_OK || !attn_file_exists(path))
        return status;
    status = attn_file_read(&bytes, context, path, MOST_BYTES);
    attn__input input = {.context = context, .name = path, .data = (const uint8_t *)bytes.data, .size = bytes.size};
    if (status == ATTN_OK)
        status = attn__json_parse(root, &input, DEPTH, MOST_VALUES, 0);
    attn_bytes_free(context, &bytes);
    return status;
}

attn_status attn__marian_tokenizer_read(attn__marian_tokenizer *tokenizer, attn_context *context, const char *directory)
{
    *tokenizer = (attn__marian_tokenizer){0};
    attn_status status = read_json(&tokenizer->config, context, directory, "tokenizer_config.json");
    if (status == ATTN_OK)
        status = read_json(&tokenizer->added, context, directory, "added_tokens.json");
    return status;
}

void attn__marian_tokenizer_free(attn__marian_tokenizer *tokenizer)
{
    json_decref(tokenizer->config);
    json_decref(tokenizer->added);
}

typedef struct adding {
    attn_context *context;
    const char *path;
    attn__marian_added *list;
    int64_t n;
} adding;

static bool is_set(const json_t *token, const char *flag)
{
    return json_is_true(json_object_get(token, flag));
}

static attn_status add(adding *a, const char *text, int64_t id, const json_t *flags)
{
    if (!text || !*text || strlen(text) > UINT16_MAX || strpbrk(text, " \t\r\n"))
        return attn__fail(a->context, ATTN_ERROR_UNSUPPORTED,
                          "%s: the added token %" PRId64 " is empty, too long or has a space in it", a->path, id);
    if (is_set(flags, "single_word"))
        return attn__fail(
            a->context, ATTN_ERROR_UNSUPPORTED,
            "%s: the added token \"%.60s\" is one of whole words (\"single_word\"), which is not supported", a->path,
            text);
    for (int64_t i = 0; i < a->n; i++) {
        if (a->list[i].id == id || strcmp(a->list[i].text, text) == 0)
            return a->list[i].id == id && strcmp(a->list[i].text, text) == 0
                       ? ATTN_OK
                       : attn__fail(a->context, ATTN_ERROR_FORMAT,
                                    "%s: the added token \"%.60s\" %" PRId64 " contradicts \"%.60s\" %" PRId64, a->path,
                                    text, id, a->list[i].text, a->list[i].id);
    }
    attn__marian_added *more = attn__grow(a->context, a->list, a->n, sizeof *more);
    if (!more)
        return ATTN_ERROR_MEMORY;
    a->list = more;
    a->list[a->n++] = (attn__marian_added){.text = text,
                                           .id = id,
                                           .how = {.strips_left = is_set(flags, "lstrip"),
                                                   .strips_right = is_set(flags, "rstrip"),
                                                   .special = is_set(flags, "special")}};
    return ATTN_OK;
}

static int by_id(const void *a, const void *b)
{
    const attn__marian_added *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* Reports whether a text is one of the special tokens. These need not be added, because they exist already. */
static bool is_own(const char *text)
{
    return text && (strcmp(text, "</s>") == 0 || strcmp(text, "<unk>") == 0 || strcmp(text, "<pad>") == 0);
}

attn_status attn__marian_added_tokens(attn__marian_added **list, int64_t *n, attn_context *context, const char *path,
                                      const attn__marian_tokenizer *tokenizer)
{
    adding a = {.context = context, .path = path};
    const char *key;
    json_t *value;
    attn_status status = ATTN_OK;
    json_object_foreach(json_object_get(tokenizer->config, "added_tokens_decoder"), key, value)
    {
        char *end;
        errno = 0;
        long long id = strtoll(key, &end, 10);
        const char *text = json_string_value(json_object_get(value, "content"));
        if (status == ATTN_OK && (*end || errno || id < 0 || id > INT32_MAX))
            status =
                attn__fail(context, ATTN_ERROR_FORMAT, "%s: \"%.60s\" of \"added_tokens_decoder\" is no id", path, key);
        if (status == ATTN_OK && !is_own(text))
            status = add(&a, text, id, value);
    }
    json_object_foreach(tokenizer->added, key, value)
    {
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (status == ATTN_OK && (id < 0 || id > INT32_MAX))
            status = attn__fail(context, ATTN_ERROR_FORMAT, "%s: \"%.60s\" of added_tokens.json has no id", path, key);
        if (status == ATTN_OK && !is_own(key))
            status = add(&a, key, id, NULL);
    }
    if (a.n > 0)
        qsort(a.list, (size_t)a.n, sizeof *a.list, by_id);
    *list = a.list;
    *n = a.n;
    return status;
}
