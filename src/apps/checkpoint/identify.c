/* SPDX-License-Identifier: MIT */
#include "apps/checkpoint/identify.h"

#include "apps/checkpoint/encoder_settings.h"
#include "apps/checkpoint/tokenizer_files.h"
#include "base/context.h"
#include "io/directory.h"
#include "io/names/names.h"
#include "io/tensors/adapter.h"
#include "io/tensors/weights_files.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ------------------------------------------------------------------------------------------------- products */

static const struct {
    const char *architecture;
    attn__application product;
    const char *use;
} families[] = {
    {"axial-transformer", ATTN__PRODUCT_GENERATOR, "draws images: attn generate and attn complete use it"},
    {"msa-transformer", ATTN__PRODUCT_MSA, "reads alignments: attn contacts, embed and score use it"},
    {"detr", ATTN__PRODUCT_DETECTOR, "detects objects: attn detect uses it"},
    {"transformer", ATTN__PRODUCT_TRANSLATOR, "translates: attn translate uses it"},
    {"seq2seq-attention", ATTN__PRODUCT_TRANSLATOR, "translates: attn translate uses it"},
};

attn__application attn__product_of(const char *architecture)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(architecture, families[i].architecture) == 0)
            return families[i].product;
    return ATTN__PRODUCT_CLASSIFIER;
}

attn_status attn__product_check(attn_context *context, const char *settings, const attn_config *config,
                                attn__application product)
{
    static const char *const nouns[] = {[ATTN__PRODUCT_TRANSLATOR] = "a translator",
                                        [ATTN__PRODUCT_CLASSIFIER] = "a classifier",
                                        [ATTN__PRODUCT_DETECTOR] = "a detector",
                                        [ATTN__PRODUCT_GENERATOR] = "a model that draws images",
                                        [ATTN__PRODUCT_MSA] = "an MSA Transformer"};
    const char *name = attn_config_text(config, "architecture", NULL), *use = NULL;
    if (!name)
        return product == ATTN__PRODUCT_CLASSIFIER ? ATTN_OK : attn__foreign_type_refuse(context, settings, config);
    if (attn__product_of(name) == product)
        return ATTN_OK;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        use = strcmp(name, families[i].architecture) == 0 ? families[i].use : use;
    return attn__fail(context, ATTN_ERROR_UNSUPPORTED, "%s: the architecture \"%.60s\" is not %s%s%s", settings, name,
                      nouns[product], use ? "; it " : "", use ? use : "");
}

/* A classifier of pictures has names of classes, or the settings of a model of pictures that counts them. */
static bool classifies(const attn__identity *is)
{
    const attn_config *c = is->config;
    return attn_config_get(c, "class_names") || (is->architecture && attn_config_get(c, "img_size") &&
                                                 (attn_config_get(c, "num_classes") || attn_config_get(c, "classes")));
}

/* The types of Hugging Face's Vision Transformers without further parts. */
static bool is_vit_type(const char *type)
{
    return strcmp(type, "vit") == 0 || strcmp(type, "vit_msn") == 0;
}

static attn__application product_of(const attn__identity *is)
{
    /* ESM's file; attn__identify_tensors tells an ESM-2 from an MSA Transformer */
    if (attn__ends_with(is->path, ".pt"))
        return ATTN__PRODUCT_MSA;
    if (is->form == ATTN__FORM_MARIAN)
        return ATTN__PRODUCT_TRANSLATOR;
    if (!is->config)
        return ATTN__PRODUCT_NONE;
    attn__application own = attn__product_of(is->named);
    if (own == ATTN__PRODUCT_MSA || own == ATTN__PRODUCT_DETECTOR)
        return own;
    if (classifies(is))
        return ATTN__PRODUCT_CLASSIFIER;
    return own != ATTN__PRODUCT_CLASSIFIER                              ? own
           : strcmp(is->type, "marian") == 0                            ? ATTN__PRODUCT_TRANSLATOR
           : strcmp(is->type, "detr") == 0                              ? ATTN__PRODUCT_DETECTOR
           : is_vit_type(is->type)                                      ? ATTN__PRODUCT_CLASSIFIER
           : is->names || strcmp(is->named, "transformer-encoder") == 0 ? ATTN__PRODUCT_ENCODER
                                                                        : ATTN__PRODUCT_NONE;
}

/* ---------------------------------------------------------------------------------------------------- forms */

static bool has(const attn__identity *is, const char *name)
{
    return attn__file_in(is->path, &name, 1) != NULL;
}

/* Reports whether the path is a regular file that begins as a zip archive does. */
static bool is_zip(const char *path)
{
    char bytes[4] = "";
    struct stat about;
    FILE *file = stat(path, &about) == 0 && S_ISREG(about.st_mode) ? fopen(path, "rb") : NULL;
    size_t n = file ? fread(bytes, 1, sizeof bytes, file) : 0;
    if (file)
        fclose(file);
    return n == sizeof bytes && memcmp(bytes, "PK\3\4", 4) == 0;
}

/* The models of bergamot are Marian's, in a binary form: model.enfr.intgemm.alphas.bin, lex.50.50.enfr.s2t.bin. */
static attn_status find_bergamot(const attn__identity *is, bool *found)
{
    attn_entries entries = {0};
    attn_status status = attn_directory_list(&entries, is->context, is->path, false);
    for (int64_t i = 0; i < entries.n; i++) {
        const char *name = entries.names[i];
        *found = *found || (strncmp(name, "model", 5) == 0 && strstr(name, "intgemm") && strstr(name, ".bin")) ||
                 (strncmp(name, "lex.", 4) == 0 && strstr(name, ".s2t.bin"));
    }
    attn_entries_free(is->context, &entries);
    /* A directory may be one whose files can be read but not listed. */
    if (status == ATTN_ERROR_IO || status == ATTN_ERROR_NOT_FOUND) {
        attn__call_forget(is->context);
        status = ATTN_OK;
    }
    return status;
}

static attn_status form_of(attn__identity *is)
{
    static const char *const vocabularies[] = {"shared_vocabulary.json", "shared_vocabulary.txt",
                                               "source_vocabulary.json", "source_vocabulary.txt",
                                               "vocabulary.json",        "vocabulary.txt"};
    bool bergamot = false;
    if (has(is, "decoder.yml") && !has(is, "config.json")) {
        is->form = ATTN__FORM_MARIAN;
        return attn__path(is->context, is->settings, is->path, "decoder.yml");
    }
    attn_status status = is->architecture ? ATTN_OK : find_bergamot(is, &bergamot);
    is->form =
        is->architecture ? ATTN__FORM_OWN
        : attn__file_in(is->path, vocabularies, sizeof vocabularies / sizeof *vocabularies) && has(is, "model.bin")
            ? ATTN__FORM_CTRANSLATE2
        : bergamot                 ? ATTN__FORM_BERGAMOT
        : *is->type && !*is->named ? ATTN__FORM_HUGGING_FACE
                                   : ATTN__FORM_OTHER;
    return status;
}

/* Reads config.json. If it cannot be read, the model is unknown. This is an error only if there was no memory, because
 * loading the model reports the other errors. */
static attn_status read_config(attn__identity *is)
{
    attn_status status = attn__path(is->context, is->settings, is->path, "config.json");
    if (status != ATTN_OK)
        return status;
    status = attn_config_read(&is->config, is->context, is->settings);
    if (status == ATTN_ERROR_MEMORY)
        return status;
    if (status != ATTN_OK) {
        is->config = NULL;
        attn__call_forget(is->context);
        return ATTN_OK;
    }
    snprintf(is->named, sizeof is->named, "%s", attn_config_text(is->config, "architecture", ""));
    snprintf(is->type, sizeof is->type, "%s", attn_config_text(is->config, "model_type", ""));
    is->architecture = attn_architecture_find(is->named);
    is->names = attn__encoder_names(is->config);
    return ATTN_OK;
}

attn_status attn__identify(attn__identity *is, attn_context *context, const char *path)
{
    ATTN__CALL(context);
    *is = (attn__identity){.context = context, .path = path, .directory = attn__is_directory(path)};
    attn_status status = attn__call_status(context);
    if (status == ATTN_OK)
        status = attn__path_copy(context, is->settings, path);
    if (status != ATTN_OK)
        return status;
    if (is->directory) {
        status = read_config(is);
        if (status == ATTN_OK)
            status = form_of(is);
        is->adapter = attn__adapter_is_in(path);
        is->weights = is->adapter || attn__weights_file_in(path);
        is->tokenizer = attn__tokenizer_file(path);
    } else if (attn_file_exists(path)) {
        is->form = ATTN__FORM_FILE;
    }
    is->product = product_of(is);
    return status;
}

/* Finds the names file and the product of the tensors. A few names of another model can match by chance, and the tensors
 * of an optimizer match no rule. */
static attn_status recognize(attn__identity *is)
{
    double rules;
    attn_status status = attn_name_map_detect(&is->tensor_names, is->tensors, NULL, &rules);
    const char *names = is->tensor_names && rules > 1.0 / 3 ? is->tensor_names : "";
    bool plain = !*is->type || is_vit_type(is->type);
    is->vit = plain && strncmp(names, "vit-", strlen("vit-")) == 0;
    if (is->directory && is->product != ATTN__PRODUCT_NONE)
        return status;
    bool esm2 = !is->directory && !attn_config_text(is->saved, "args.arch", NULL) &&
                attn_config_int(is->saved, "cfg.model.encoder_attention_heads", 0) > 0;
    is->product = is->vit                                         ? ATTN__PRODUCT_CLASSIFIER
                  : strncmp(names, "detr-", strlen("detr-")) == 0 ? ATTN__PRODUCT_DETECTOR
                  : esm2                                          ? ATTN__PRODUCT_ENCODER
                                                                  : is->product;
    return status;
}

attn_status attn__identify_tensors(attn__identity *is)
{
    ATTN__CALL(is->context);
    if (is->tensors)
        return ATTN_OK;
    attn_status status = is->saved ? ATTN_OK : attn_config_create(&is->saved, is->context);
    if (status == ATTN_OK)
        status = attn_checkpoint_open(&is->tensors, is->context, is->path, NULL, is->saved);
    return status == ATTN_OK ? recognize(is) : status;
}

attn_status attn__identify_weights(attn__identity *is)
{
    attn_status status = attn__identify_tensors(is);
    if (status == ATTN_OK || status == ATTN_ERROR_MEMORY)
        return status;
    attn__call_forget(is->context);
    return ATTN_OK;
}

void attn__identity_end(attn__identity *is)
{
    attn_checkpoint_close(is->tensors);
    attn_config_destroy(is->saved);
    attn_config_destroy(is->config);
    is->tensors = NULL;
    is->saved = is->config = NULL;
}

/* ----------------------------------------------------------------------------------------------------- files */

const char *attn__tokenizer_file(const char *directory)
{
#define NAME(name, function) name,
    static const char *const names[] = {ATTN__TOKENIZER_FILES(NAME)};
#undef NAME
    return attn__file_in(directory, names, sizeof names / sizeof *names);
}

attn_status attn__identity_weights(const attn__identity *is, char *path)
{
    return is->adapter ? attn__path_copy(is->context, path, is->path)
                       : attn__path(is->context, path, is->path, "model.safetensors");
}

attn_status attn__identity_config(attn__identity *is, attn_config **config)
{
    *config = is->config;
    is->config = NULL;
    return *config ? ATTN_OK : attn_config_read(config, is->context, is->settings);
}

attn_status attn__settings_beside(attn_config **config, attn_context *context, const char *path, const char *name,
                                  char *beside)
{
    attn_status status = attn__is_directory(path) ? attn__path(context, beside, path, name)
                                                  : attn__path_beside(context, beside, path, name);
    return status == ATTN_OK && attn_file_exists(beside) ? attn_config_read(config, context, beside) : status;
}

/* -------------------------------------------------------------------------------------------------- refusals */

attn_status attn__identity_translates(const attn__identity *is)
{
    char type[160];
    snprintf(type, sizeof type, "a model of Hugging Face of the type \"%.60s\", which attn translate does not support",
             is->type);
    bool typed = is->form == ATTN__FORM_HUGGING_FACE && strcmp(is->type, "marian") != 0;
    const char *what = is->directory && has(is, "decoder.yml")            ? NULL
                       : is->form == ATTN__FORM_CTRANSLATE2               ? "a model of CTranslate2"
                       : is->form == ATTN__FORM_BERGAMOT                  ? "a model of bergamot (Firefox Translations)"
                       : typed                                            ? type
                       : is->form != ATTN__FORM_FILE || !is_zip(is->path) ? NULL
                       : attn__ends_with(is->path, ".pt")                 ? "a file of PyTorch"
                       : attn__ends_with(is->path, ".argosmodel")
                           ? "a package of Argos Translate, a zip archive with a model of CTranslate2"
                           : "a zip archive";
    return what ? attn__fail(
                      is->context, ATTN_ERROR_UNSUPPORTED,
                      "%s: this is %s; attn translate supports MarianMT's directories and OPUS-MT's unpacked archives",
                      is->path, what)
                : ATTN_OK;
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
