/* SPDX-License-Identifier: MIT
 * Opens the tokenizer of a directory as it was published. */
#include "apps/checkpoint/tokenizer_read.h"

#include "apps/checkpoint/tokenizer_files.h"

#include "io/directory.h"

#include <string.h>

enum { MOST_BYTES = 1 << 28, MOST_DEPTH = 32, MOST_VALUES = 1000000, LONGEST = 1000000 };

/* Reads tokenizer_config.json, if there is one. The file's text is freed after it was parsed. */
static attn_status read_config(json_t **config, attn_context *context, const char *directory)
{
    attn_bytes file = {0};
    *config = NULL;
    char *path = attn__join(context, directory, "tokenizer_config.json");
    if (!path)
        return ATTN_ERROR_MEMORY;
    attn_status status = ATTN_OK;
    if (attn_file_exists(path)) {
        status = attn_file_read(&file, context, path, MOST_BYTES);
        attn__input input = {.context = context, .name = path, .data = (const uint8_t *)file.data, .size = file.size};
        if (status == ATTN_OK)
            status = attn__json_parse(config, &input, MOST_DEPTH, MOST_VALUES, 0);
        attn_bytes_free(context, &file);
    }
    attn__free(context, path);
    return status;
}

/* Returns the text of a token that is a string or an object with "content", or NULL. */
static const char *token_text(const json_t *config, const char *key)
{
    const json_t *token = json_object_get(config, key);
    return json_string_value(json_is_object(token) ? json_object_get(token, "content") : token);
}

static const char *const special_keys[ATTN__TOKEN_SPECIALS] = {"cls_token", "sep_token", "pad_token", "mask_token",
                                                               "unk_token"};

/* Takes the special tokens and the longest input from tokenizer_config.json. A length that is larger than any model's
 * stands for no limit. */
static void apply_config(attn__tokenizer *t, const json_t *config)
{
    for (int i = 0; i < ATTN__TOKEN_SPECIALS; i++) {
        const char *text = token_text(config, special_keys[i]);
        int32_t id = text ? attn__tokenizer_find(t, text, strlen(text)) : -1;
        t->special[i] = id >= 0 ? id : t->special[i];
    }
    double longest = json_number_value(json_object_get(config, "model_max_length"));
    if (longest >= 1 && longest <= LONGEST)
        t->max_length = (int64_t)longest;
}

/* ------------------------------------------------------------------------------------------------- vocab.txt */

static bool flag(const json_t *config, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(config, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

/* Adds the lines of vocab.txt as tokens. An id is the number of the line. */
static attn_status add_lines(attn__tokenizer *t, const char *name, const attn_bytes *file)
{
    attn_status status = ATTN_OK;
    int64_t id = 0;
    for (size_t at = 0; at < file->size && status == ATTN_OK; id++) {
        const char *line = file->data + at, *newline = memchr(line, '\n', file->size - at);
        size_t length = newline ? (size_t)(newline - line) : file->size - at;
        at += length + 1;
        if (length > 0 && line[length - 1] == '\r')
            length--;
        status = attn__tokenizer_add_token(t, name, line, length, id);
    }
    return status;
}

/* Makes the special tokens of a model with vocab.txt added tokens, which are found in texts. */
static attn_status add_special(attn__tokenizer *t, const char *name, const json_t *config, int32_t ids[])
{
    static const char *const usual[ATTN__TOKEN_SPECIALS] = {"[CLS]", "[SEP]", "[PAD]", "[MASK]", "[UNK]"};
    attn_status status = ATTN_OK;
    for (int i = 0; i < ATTN__TOKEN_SPECIALS && status == ATTN_OK; i++) {
        const char *text = token_text(config, special_keys[i]);
        text = text ? text : usual[i];
        ids[i] = attn__trie_find(&t->model.trie, text, strlen(text));
        if (ids[i] < 0)
            return attn__fail(t->context, ATTN_ERROR_FORMAT, "%s: the vocabulary has no \"%.60s\"", name, text);
        attn__added added = {.content = (char *)(uintptr_t)text, .size = strlen(text), .special = true};
        status = attn__tokenizer_add_added(t, name, &added);
    }
    const char *key;
    json_t *token, *more = json_object_get(config, "added_tokens_decoder");
    json_object_foreach(more, key, token) if (status == ATTN_OK) status = attn__tokenizer_read_added(t, name, token);
    return status;
}

/* Refuses a kind of tokenizer whose vocab.txt has another meaning than Bert's. */
static attn_status check_class(attn_context *context, const char *name, const json_t *config)
{
    static const char *const known[] = {"BertTokenizer",          "BertTokenizerFast",    "DistilBertTokenizer",
                                        "ElectraTokenizer",       "ElectraTokenizerFast", "DistilBertTokenizerFast",
                                        "MPNetTokenizer",         "MPNetTokenizerFast",   "MobileBertTokenizer",
                                        "MobileBertTokenizerFast"};
    const char *class = json_string_value(json_object_get(config, "tokenizer_class"));
    for (size_t i = 0; class && i < sizeof known / sizeof *known; i++)
        if (strcmp(class, known[i]) == 0)
            return ATTN_OK;
    if (!class)
        return ATTN_OK;
    return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                      "%s: tokenizer_class \"%.60s\" is not supported with vocab.txt; a tokenizer.json is", name,
                      class);
}

/* Builds Bert's tokenizer from vocab.txt and the settings in tokenizer_config.json. */
static attn_status build_bert(attn__tokenizer **tokenizer, attn_context *context, const char *name,
                              const attn_bytes *file, const json_t *config)
{
    int32_t ids[ATTN__TOKEN_SPECIALS] = {0};
    bool lower = flag(config, "do_lower_case", true);
    attn_status status = check_class(context, name, config);
    if (status == ATTN_OK)
        status = attn__tokenizer_create(tokenizer, context);
    if (status == ATTN_OK)
        status = add_lines(*tokenizer, name, file);
    if (status == ATTN_OK)
        status = attn__tokenizer_add_bert_normalizer(*tokenizer, true, flag(config, "tokenize_chinese_chars", true),
                                                     flag(config, "strip_accents", lower), lower);
    if (status == ATTN_OK)
        status = attn__tokenizer_add_bert_splitters(*tokenizer);
    if (status == ATTN_OK)
        status = add_special(*tokenizer, name, config, ids);
    if (status == ATTN_OK)
        status = attn__tokenizer_add_bert_template(*tokenizer, ids[ATTN__TOKEN_CLS], ids[ATTN__TOKEN_SEP]);
    if (status == ATTN_OK) {
        attn__tokenizer_set_word_piece(*tokenizer, "##", 100);
        (*tokenizer)->model.unk = ids[ATTN__TOKEN_UNK];
        status = attn__tokenizer_finish(*tokenizer, name);
    }
    return status;
}

/* ------------------------------------------------------------------------------------------------- directory */

static attn_status open_file(attn__tokenizer **tokenizer, attn_context *context, const char *path, bool is_json,
                             const json_t *config)
{
    attn_bytes file = {0};
    attn_status status = attn_file_read(&file, context, path, MOST_BYTES);
    if (status == ATTN_OK && is_json)
        status = attn__tokenizer_parse(tokenizer, context, file.data, file.size, path);
    else if (status == ATTN_OK)
        status = build_bert(tokenizer, context, path, &file, config);
    if (status == ATTN_OK)
        apply_config(*tokenizer, config);
    attn_bytes_free(context, &file);
    return status;
}

attn_status attn__tokenizer_open(attn__tokenizer **tokenizer, attn_context *context, const char *directory)
{
    *tokenizer = NULL;
    json_t *config = NULL;
    char *json = attn__join(context, directory, "tokenizer.json"), *vocab = NULL;
    if (json)
        vocab = attn__join(context, directory, "vocab.txt");
    attn_status status = vocab ? read_config(&config, context, directory) : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK && attn_file_exists(json))
        status = open_file(tokenizer, context, json, true, config);
    else if (status == ATTN_OK && attn_file_exists(vocab))
        status = open_file(tokenizer, context, vocab, false, config);
    else if (status == ATTN_OK)
        status = attn__fail(context, ATTN_ERROR_NOT_FOUND, "%s: no tokenizer.json and no vocab.txt", directory);
    json_decref(config);
    attn__free(context, json);
    attn__free(context, vocab);
    if (status != ATTN_OK) {
        attn__tokenizer_destroy(*tokenizer);
        *tokenizer = NULL;
    }
    return status;
}
