/* SPDX-License-Identifier: MIT
 *
 * Reads the files that sentence-transformers writes beside a model: modules.json, 1_Pooling/config.json,
 * sentence_bert_config.json and config_sentence_transformers.json. */
#include "apps/encoder/encoder.h"

#include "apps/checkpoint/identify.h"
#include "base/context.h"
#include "io/directory.h"
#include "io/json.h"

#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------ pooling */

static attn_status refuse_pooling(const attn_encoder *encoder, const char *path, const char *key)
{
    return attn__fail(encoder->context, ATTN_ERROR_UNSUPPORTED,
                      "%s: the pooling is \"%.60s\"; supported: mean, cls, max, last token", path, key);
}

static attn_status take_pooling(attn_encoder *encoder, const attn_config *config, const char *path)
{
    static const struct {
        const char *key, *word;
        attn_pool pool;
    } modes[] = {{"pooling_mode_cls_token", "cls", ATTN_POOL_CLS},
                 {"pooling_mode_mean_tokens", "mean", ATTN_POOL_MEAN},
                 {"pooling_mode_max_tokens", "max", ATTN_POOL_MAX},
                 {"pooling_mode_lasttoken", "lasttoken", ATTN_POOL_LAST}};
    const char *word = attn_config_text(config, "pooling_mode", NULL);
    int found = 0;
    for (int64_t i = 0; i < attn_config_size(config); i++) {
        const char *key = attn_config_key(config, i);
        bool known = false;
        for (size_t k = 0; k < sizeof modes / sizeof *modes; k++)
            known = known || strcmp(key, modes[k].key) == 0;
        if (!known && strncmp(key, "pooling_mode_", strlen("pooling_mode_")) == 0 &&
            attn_config_bool(config, key, false))
            return refuse_pooling(encoder, path, key);
    }
    for (size_t k = 0; k < sizeof modes / sizeof *modes; k++)
        if (word ? strcmp(word, modes[k].word) == 0 : attn_config_bool(config, modes[k].key, false)) {
            encoder->info.pool = modes[k].pool;
            found++;
        }
    if (found != 1)
        return refuse_pooling(encoder, path, word ? word : found ? "several modes" : "no mode");
    encoder->info.pooled = true;
    encoder->skips_prompt = !attn_config_bool(config, "include_prompt", true);
    return ATTN_OK;
}

static attn_status read_pooling(attn_encoder *encoder, const char *folder)
{
    char name[ATTN__PATH], path[ATTN__PATH];
    attn_config *config = NULL;
    snprintf(name, sizeof name, "%.2000s/config.json", folder);
    attn_status status = attn__settings_beside(&config, encoder->context, encoder->directory, name, path);
    if (status == ATTN_OK && !config)
        status = attn__fail(encoder->context, ATTN_ERROR_NOT_FOUND,
                            "%s: there is no such file, but modules.json names it", path);
    if (status == ATTN_OK)
        status = take_pooling(encoder, config, path);
    attn_config_destroy(config);
    return status;
}

/* ------------------------------------------------------------------------------------------------ modules */

static bool is_module(const char *type, const char *name)
{
    size_t n = strlen(type), m = strlen(name);
    return n > m && type[n - m - 1] == '.' && strcmp(type + n - m, name) == 0;
}

static attn_status take_module(attn_encoder *encoder, const json_t *module, size_t index, const char *path)
{
    const char *type = json_string_value(json_object_get(module, "type"));
    const char *folder = json_string_value(json_object_get(module, "path"));
    if (!type || !folder)
        return attn__fail(encoder->context, ATTN_ERROR_FORMAT, "%s: \"%s\" of module %zu is missing or is not a text",
                          path, type ? "path" : "type", index);
    if (is_module(type, "Transformer"))
        return !*folder ? ATTN_OK
                        : attn__fail(encoder->context, ATTN_ERROR_UNSUPPORTED,
                                     "%s: the transformer is in the folder \"%.60s\"; give the path of this folder",
                                     path, folder);
    if (is_module(type, "Pooling"))
        return read_pooling(encoder, folder);
    if (is_module(type, "Normalize")) {
        encoder->info.normalize = true;
        return ATTN_OK;
    }
    return attn__fail(encoder->context, ATTN_ERROR_UNSUPPORTED,
                      "%s: a module has the type \"%.80s\"; supported: Transformer, Pooling, Normalize", path, type);
}

static attn_status read_modules(attn_encoder *encoder)
{
    char path[ATTN__PATH];
    attn_bytes bytes = {0};
    json_error_t error;
    attn_status status = attn__path(encoder->context, path, encoder->directory, "modules.json");
    if (status != ATTN_OK || !attn_file_exists(path))
        return status;
    status = attn_file_read(&bytes, encoder->context, path, 1 << 20);
    json_t *list = status == ATTN_OK ? attn__json_load((const char *)bytes.data, bytes.size, 0, &error) : NULL;
    if (status == ATTN_OK && !json_is_array(list))
        status = attn__fail(encoder->context, ATTN_ERROR_FORMAT, "%s: expected a JSON list of modules", path);
    for (size_t i = 0; status == ATTN_OK && i < json_array_size(list); i++)
        status = take_module(encoder, json_array_get(list, i), i, path);
    json_decref(list);
    attn_bytes_free(encoder->context, &bytes);
    return status;
}

/* ------------------------------------------------------------------------------------------------ all */

attn_status attn__encoder_published(attn_encoder *encoder)
{
    char path[ATTN__PATH];
    attn_config *config = NULL;
    attn_status status = read_modules(encoder);
    if (status == ATTN_OK)
        status =
            attn__settings_beside(&config, encoder->context, encoder->directory, "sentence_bert_config.json", path);
    if (status == ATTN_OK && config) {
        int64_t most = attn_config_int(config, "max_seq_length", 0);
        encoder->info.max_length = most > 0 && most < encoder->info.max_length ? most : encoder->info.max_length;
        encoder->lower_case = attn_config_bool(config, "do_lower_case", false);
        if (encoder->lower_case)
            status = attn__fail(
                encoder->context, ATTN_ERROR_UNSUPPORTED,
                "%s: \"do_lower_case\" is true, which is not supported; only a tokenizer that changes letters to lower "
                "case is supported",
                path);
    }
    attn_config_destroy(config);
    return status == ATTN_OK ? attn__settings_beside(&encoder->prompts, encoder->context, encoder->directory,
                                                     "config_sentence_transformers.json", path)
                             : status;
}

attn_status attn_encoder_prompt(attn_encoder *encoder, const char *text, const char *name)
{
    ATTN__CALL(encoder->context);
    char key[256];
    if (!text && encoder->prompts && !name)
        name = attn_config_text(encoder->prompts, "default_prompt_name", NULL);
    if (!text && name) {
        snprintf(key, sizeof key, "prompts.%.200s", name);
        text = encoder->prompts ? attn_config_text(encoder->prompts, key, NULL) : NULL;
        if (!text)
            return attn__fail(encoder->context, ATTN_ERROR_NOT_FOUND, "%s: no prompt has the name \"%.80s\"",
                              encoder->directory, name);
    }
    size_t size = text ? strlen(text) : 0;
    char *copy = size ? attn__alloc(encoder->context, size + 1) : NULL;
    if (size && !copy)
        return ATTN_ERROR_MEMORY;
    if (copy)
        memcpy(copy, text, size + 1);
    attn__free(encoder->context, encoder->prompt);
    encoder->prompt = copy;
    encoder->prompt_tokens = 0;
    if (!copy || !encoder->skips_prompt)
        return ATTN_OK;
    attn_encoder_text alone = {0};
    attn_status status = attn_encoder_tokens(encoder, "", 0, &alone);
    encoder->prompt_tokens = status == ATTN_OK && alone.n > 1 ? alone.n - 1 : 0; /* without the last special token */
    attn_encoder_text_free(encoder, &alone);
    return status;
}
