/* SPDX-License-Identifier: MIT
 *
 * Reads the special and added tokens of a MarianMT model's tokenizer, by the rules of transformers.
 */
#include "apps/checkpoint/marian.h"

#include "apps/checkpoint/model_directory.h"
#include "base/context.h"
#include "io/directory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
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

/* Refuses options of SentencePiece that change its pieces. False and numbers, such as of threads, change none. */
static attn_status check_pieces(const attn__marian_tokenizer *tokenizer, attn_context *context, const char *directory)
{
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(tokenizer->config, "sp_model_kwargs"), key, value)
    {
        if (json_is_true(value))
            return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                              "%s/tokenizer_config.json: \"%.60s\" of \"sp_model_kwargs\" is true, which is not "
                              "supported",
                              directory, key);
    }
    return ATTN_OK;
}

attn_status attn__marian_tokenizer_read(attn__marian_tokenizer *tokenizer, attn_context *context, const char *directory)
{
    *tokenizer = (attn__marian_tokenizer){0};
    attn_status status = read_json(&tokenizer->config, context, directory, "tokenizer_config.json");
    if (status == ATTN_OK && !json_object_get(tokenizer->config, "added_tokens_decoder"))
        status = read_json(&tokenizer->specials, context, directory, "special_tokens_map.json");
    if (status == ATTN_OK && !json_object_get(tokenizer->config, "added_tokens_decoder"))
        status = read_json(&tokenizer->added, context, directory, "added_tokens.json");
    return status == ATTN_OK ? check_pieces(tokenizer, context, directory) : status;
}

void attn__marian_tokenizer_free(attn__marian_tokenizer *tokenizer)
{
    json_decref(tokenizer->config);
    json_decref(tokenizer->specials);
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

/* Returns the text of a token, which is a string or an object with its flags. */
static const char *text_of(const json_t *token)
{
    return json_string_value(json_is_object(token) ? json_object_get(token, "content") : token);
}

const char *attn__marian_named_token(const attn__marian_tokenizer *tokenizer, const char *name, const char *otherwise)
{
    const char *text = text_of(json_object_get(tokenizer->specials, name));
    if (!text)
        text = text_of(json_object_get(tokenizer->config, name));
    return text ? text : otherwise;
}

/* Appends a token. If the list already has it, it only becomes special if it is `special`. */
static attn_status add(adding *a, const char *text, int64_t id, const json_t *flags, bool special)
{
    if (!text || !*text)
        return attn__fail(a->context, ATTN_ERROR_UNSUPPORTED, "%s: an added token is empty", a->path);
    if (strlen(text) > UINT16_MAX)
        return attn__fail(a->context, ATTN_ERROR_UNSUPPORTED,
                          "%s: the added token \"%.60s\" has %zu bytes; at most 65535 are supported", a->path, text,
                          strlen(text));
    if (strpbrk(text, " \t\r\n"))
        return attn__fail(a->context, ATTN_ERROR_UNSUPPORTED,
                          "%s: the added token \"%.60s\" has a space, which is not supported", a->path, text);
    if (is_set(flags, "single_word"))
        return attn__fail(a->context, ATTN_ERROR_UNSUPPORTED,
                          "%s: the added token \"%.60s\" has \"single_word\", which is not supported", a->path, text);
    for (int64_t i = 0; i < a->n; i++) {
        const bool same = strcmp(a->list[i].text, text) == 0;
        if (same && (id < 0 || a->list[i].id == id)) {
            a->list[i].how.special = a->list[i].how.special || special;
            return ATTN_OK;
        }
        if (same)
            return attn__fail(a->context, ATTN_ERROR_FORMAT,
                              "%s: the added token \"%.60s\" has two ids, %" PRId64 " and %" PRId64, a->path, text,
                              a->list[i].id, id);
        if (id >= 0 && a->list[i].id == id)
            return attn__fail(a->context, ATTN_ERROR_FORMAT,
                              "%s: the added tokens \"%.60s\" and \"%.60s\" have the same id, %" PRId64, a->path,
                              a->list[i].text, text, id);
    }
    attn__marian_added *more = attn__grow(a->context, a->list, a->n, sizeof *more);
    if (!more)
        return ATTN_ERROR_MEMORY;
    a->list = more;
    a->list[a->n++] = (attn__marian_added){
        .text = text,
        .id = id,
        .how = {.strips_left = is_set(flags, "lstrip"), .strips_right = is_set(flags, "rstrip"), .special = special}};
    return ATTN_OK;
}

static int by_id(const void *a, const void *b)
{
    const attn__marian_added *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* The named tokens that every vocabulary has, with the texts that they have if no file names them. */
static const char *const own[][2] = {{"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}};
enum { OWN = sizeof own / sizeof *own };

/* Reports whether a text is one of the tokens `own`. Their ids are those of each vocabulary. */
static bool is_own(const attn__marian_tokenizer *tokenizer, const char *text)
{
    for (int i = 0; i < OWN; i++)
        if (text && strcmp(text, attn__marian_named_token(tokenizer, own[i][0], own[i][1])) == 0)
            return true;
    return false;
}

static attn_status fail_id(const adding *a, const char *token, const json_t *value)
{
    char found[80];
    if (json_is_integer(value))
        snprintf(found, sizeof found, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(found, sizeof found, "%g", json_real_value(value));
    else if (json_is_string(value))
        snprintf(found, sizeof found, "\"%.60s\"", json_string_value(value));
    else
        snprintf(found, sizeof found, "%s",
                 json_is_boolean(value) ? "a bool"
                 : json_is_null(value)  ? "null"
                                        : "a list or an object");
    return attn__fail(a->context, ATTN_ERROR_FORMAT,
                      "%s: the id of \"%.60s\" in added_tokens.json is %s; expected an integer from 0 to %d", a->path,
                      token, found, INT32_MAX);
}

/* Adds the tokens with ids of their own. */
static attn_status add_numbered(adding *a, const attn__marian_tokenizer *tokenizer)
{
    const char *key;
    json_t *value;
    attn_status status = ATTN_OK;
    json_object_foreach(json_object_get(tokenizer->config, "added_tokens_decoder"), key, value)
    {
        char *end;
        errno = 0;
        long long id = strtoll(key, &end, 10);
        const char *text = text_of(value);
        if (status == ATTN_OK && (*end || errno || id < 0 || id > INT32_MAX))
            status = attn__fail(a->context, ATTN_ERROR_FORMAT, "%s: \"%.60s\" of \"added_tokens_decoder\" is not an id",
                                a->path, key);
        if (status == ATTN_OK && !is_own(tokenizer, text))
            status = add(a, text, id, value, is_set(value, "special"));
    }
    json_object_foreach(tokenizer->added, key, value)
    {
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (status == ATTN_OK && (id < 0 || id > INT32_MAX))
            status = fail_id(a, key, value);
        if (status == ATTN_OK && !is_own(tokenizer, key))
            status = add(a, key, id, NULL, false);
    }
    if (a->n > 0)
        qsort(a->list, (size_t)a->n, sizeof *a->list, by_id);
    return status;
}

/* Adds the tokens that a file names NAME_token. */
static attn_status add_named(adding *a, const json_t *file)
{
    static const char ending[] = "_token";
    const size_t size = sizeof ending - 1;
    const char *key;
    json_t *value;
    attn_status status = ATTN_OK;
    json_object_foreach((json_t *)file, key, value)
    {
        const size_t length = strlen(key);
        if (status == ATTN_OK && length > size && strcmp(key + length - size, ending) == 0 && text_of(value))
            status = add(a, text_of(value), -1, value, true);
    }
    return status;
}

static attn_status add_list(adding *a, const json_t *list)
{
    const char *key;
    json_t *value;
    attn_status status = ATTN_OK;
    for (size_t i = 0; i < json_array_size(list) && status == ATTN_OK; i++)
        status = add(a, text_of(json_array_get(list, i)), -1, json_array_get(list, i), true);
    json_object_foreach((json_t *)list, key, value)
    {
        if (status == ATTN_OK)
            status = add(a, text_of(value), -1, value, true);
    }
    return status;
}

/* Adds the lists, or objects, of further special tokens. The older key counts only if no list precedes it. */
static attn_status add_further(adding *a, const attn__marian_tokenizer *tokenizer)
{
    const json_t *const files[] = {tokenizer->config, tokenizer->specials};
    attn_status status = ATTN_OK;
    size_t found = 0;
    for (int i = 0; i < 2 && status == ATTN_OK; i++) {
        const json_t *list = json_object_get(files[i], "extra_special_tokens");
        if (json_array_size(list) + json_object_size(list) + found == 0)
            list = json_object_get(files[i], "additional_special_tokens");
        found += json_array_size(list) + json_object_size(list);
        status = add_list(a, list);
    }
    return status;
}

attn_status attn__marian_added_tokens(attn__marian_added **list, int64_t *n, attn_context *context, const char *path,
                                      const attn__marian_tokenizer *tokenizer)
{
    const json_t *const files[] = {tokenizer->config, tokenizer->specials};
    adding a = {.context = context, .path = path};
    attn_status status = add_numbered(&a, tokenizer);
    for (int i = 0; i < OWN && status == ATTN_OK; i++)
        status = add(&a, attn__marian_named_token(tokenizer, own[i][0], own[i][1]), -1, NULL, true);
    for (int i = 0; i < 2 && status == ATTN_OK; i++)
        status = add_named(&a, files[i]);
    if (status == ATTN_OK)
        status = add_further(&a, tokenizer);
    *list = a.list;
    *n = a.n;
    return status;
}
