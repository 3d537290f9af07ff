/* SPDX-License-Identifier: MIT */
#include "apps/checkpoint/foreign_kind.h"

#include "apps/checkpoint/model_config.h"
#include "apps/checkpoint/model_directory.h"
#include "base/context.h"
#include "io/directory.h"
#include "io/file.h"

#include <stdio.h>
#include <string.h>

static const char INSTEAD[] = "attn translate supports MarianMT's directories and OPUS-MT's unpacked archives";

static bool has(attn_context *context, const char *directory, const char *name)
{
    char path[ATTN__PATH];
    return attn__path(context, path, directory, name) == ATTN_OK && attn_file_exists(path);
}

static bool is_ctranslate2(attn_context *context, const char *directory)
{
    static const char *const vocabularies[] = {"shared_vocabulary.json", "shared_vocabulary.txt",
                                               "source_vocabulary.json", "source_vocabulary.txt",
                                               "vocabulary.json",        "vocabulary.txt"};
    bool vocabulary = false;
    for (size_t i = 0; i < sizeof vocabularies / sizeof *vocabularies; i++)
        vocabulary = vocabulary || has(context, directory, vocabularies[i]);
    return vocabulary && has(context, directory, "model.bin");
}

/* The models of bergamot are Marian's, in a binary form: model.enfr.intgemm.alphas.bin, lex.50.50.enfr.s2t.bin. */
static attn_status find_bergamot(attn_context *context, const char *directory, bool *found)
{
    attn_entries entries = {0};
    attn_status status = attn_directory_list(&entries, context, directory, false);
    for (int64_t i = 0; i < entries.n; i++) {
        const char *name = entries.names[i];
        *found = *found || (strncmp(name, "model", 5) == 0 && strstr(name, "intgemm") && strstr(name, ".bin")) ||
                 (strncmp(name, "lex.", 4) == 0 && strstr(name, ".s2t.bin"));
    }
    attn_entries_free(context, &entries);
    /* A directory may be one whose files can be read but not listed. */
    if (status == ATTN_ERROR_IO || status == ATTN_ERROR_NOT_FOUND) {
        attn_context_clear_error(context);
        status = ATTN_OK;
    }
    return status;
}

static bool is_zip(const char *path)
{
    char bytes[4] = "";
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(bytes, 1, sizeof bytes, file) : 0;
    if (file)
        fclose(file);
    return n == sizeof bytes && memcmp(bytes, "PK\3\4", 4) == 0;
}

static attn_status refuse(attn_context *context, const char *path, const char *what)
{
    return attn__fail(context, ATTN_ERROR_UNSUPPORTED, "%s: %s; %s", path, what, INSTEAD);
}

static attn_status refuse_type(attn_context *context, const char *directory)
{
    char what[160];
    attn_config *config = attn__model_config_try(context, directory);
    const char *type = config ? attn_config_text(config, "model_type", "") : "";
    attn_status status = attn__call_status(context) == ATTN_ERROR_MEMORY ? ATTN_ERROR_MEMORY : ATTN_OK;
    snprintf(what, sizeof what, "a model of Hugging Face of the type \"%.60s\", which attn translate does not support",
             type);
    if (status == ATTN_OK && *type && !attn_config_get(config, "architecture") && strcmp(type, "marian") != 0)
        status = refuse(context, directory, what);
    attn_config_destroy(config);
    return status;
}

attn_status attn__foreign_type_refuse(attn_context *context, const char *settings, const attn_config *config)
{
    const char *type = attn_config_text(config, "model_type", NULL),
               *own = attn_config_text(config, "architecture", NULL);
    if (own)
        return attn__fail(context, ATTN_ERROR_FORMAT, "%s: there is no architecture \"%.80s\"", settings, own);
    if (!type)
        return attn__fail(context, ATTN_ERROR_FORMAT, "%s: the setting \"architecture\" is missing", settings);
    return attn__fail(
        context, ATTN_ERROR_UNSUPPORTED,
        "%s: the model_type is \"%.60s\"; of Hugging Face's models, attn classify reads vit, attn detect "
        "reads detr, attn translate reads marian, and attn embed reads directories of bert, roberta, xlm-roberta, camembert, "
        "distilbert, modernbert and esm; the other commands read what attn train wrote",
        settings, type);
}

attn_status attn__foreign_translator_refuse(attn_context *context, const char *path)
{
    if (attn__is_directory(path)) {
        if (has(context, path, "decoder.yml"))
            return ATTN_OK;
        if (is_ctranslate2(context, path))
            return refuse(context, path, "a model of CTranslate2");
        bool bergamot = false;
        attn_status status = find_bergamot(context, path, &bergamot);
        return status != ATTN_OK ? status
               : bergamot        ? refuse(context, path, "a model of bergamot (Firefox Translations)")
                                 : refuse_type(context, path);
    }
    if (!is_zip(path))
        return ATTN_OK;
    return refuse(context, path,
                  attn__ends_with(path, ".argosmodel")
                      ? "a package of Argos Translate, a zip archive with a model of CTranslate2"
                      : "a zip archive");
}
