/* SPDX-License-Identifier: MIT
 *
 * Loads published encoders: directories of Hugging Face and sentence-transformers, and checkpoints of ESM-2. */
#include "apps/encoder/encoder.h"

#include "apps/checkpoint/encoder_settings.h"
#include "apps/checkpoint/foreign_model.h"
#include "apps/checkpoint/model_config.h"
#include "base/context.h"
#include "data/proteins.h"
#include "io/directory.h"
#include "io/file.h"
#include "models/kind.h"

#include <stdio.h>
#include <string.h>

static const char esm_names[] = "esm2-esm", regression_prefix[] = "contact_head.regression.";

/* ------------------------------------------------------------------------------------------------ ESM-2 */

/* Returns the path of the file with the contact regression: NAME.pt becomes NAME-contact-regression.pt. Returns "" if
 * there is no such file. */
static const char *regression_beside(const char *path, char beside[ATTN__PATH])
{
    int n = snprintf(beside, ATTN__PATH, "%.*s-contact-regression.pt", (int)strlen(path) - 3, path);
    return n < ATTN__PATH && attn_file_exists(beside) ? beside : "";
}

static bool is_regression(const char *name)
{
    return strncmp(name, regression_prefix, sizeof regression_prefix - 1) == 0;
}

/* Fills the parameters of the regression, or all others. */
static attn_status load_part(attn_encoder *encoder, const char *path, const attn_name_map *names, bool regression)
{
    attn_named_list part = {.context = encoder->context};
    attn_weights_options how = {.names = names, .allow_extra = regression};
    const attn_named_list *all = attn_model_parameters(encoder->model);
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < all->n && status == ATTN_OK; i++)
        if (is_regression(all->items[i].name) == regression)
            status = attn_named_add(&part, all->items[i].name, all->items[i].tensor);
    if (status == ATTN_OK)
        status = attn_weights_load(&part, path, &how, NULL, NULL);
    attn_named_clear(&part);
    return status;
}

/* ------------------------------------------------------------------------------------------------ the model */

/* Limits the length of texts, and makes positions for it. */
static attn_status set_length(attn_encoder *encoder, attn_config *config, int64_t wanted)
{
    int64_t most = attn_config_int(config, "max_len", 0) - attn_config_int(config, "position_offset", 0);
    encoder->rotary = strcmp(attn_config_text(config, "rotary", "none"), "none") != 0;
    if (wanted > most && !encoder->rotary)
        return attn__fail(encoder->context, ATTN_ERROR_ARGUMENT,
                          "max_length is %lld tokens, but the model has positions for only %lld", (long long)wanted,
                          (long long)most);
    encoder->info.max_length = wanted > 0 ? wanted : most;
    return wanted > most ? attn_config_set_int(config, "max_len", wanted) : ATTN_OK;
}

/* The names files give settings that are not in the foreign config until they are looked up. */
static attn_status read_model(attn_encoder *encoder, attn__foreign *foreign, const char *path,
                              const attn_encoder_load_options *o)
{
    attn_context *context = encoder->context;
    bool checkpoint = attn__ends_with(path, ".pt");
    char beside[ATTN__PATH] = "";
    const char *regression = o->regression ? o->regression : checkpoint ? regression_beside(path, beside) : "";
    attn__foreign_wish wish = {.names = checkpoint && !o->names ? esm_names : o->names};
    attn_status status = attn__foreign_begin(foreign, context, path, &wish);
    if (status == ATTN_ERROR_FORMAT && checkpoint && foreign->config) /* the heads are among the arguments */
        attn_context_clear_error(context), status = ATTN_OK;
    if (status == ATTN_OK && checkpoint)
        status = attn__identify_tensors(&foreign->is);
    if (status == ATTN_OK && checkpoint)
        status = attn__esm2_settings(foreign->config, context, foreign->is.saved, path);
    if (status == ATTN_OK && *regression)
        status = attn_config_set_bool(foreign->config, "contacts", true);
    if (status == ATTN_OK && !attn__foreign_architecture(foreign))
        status = attn__foreign_model(&encoder->model, context, foreign, NULL); /* fails, and says why */
    if (status == ATTN_OK && strcmp(attn__foreign_architecture(foreign)->name, "transformer-encoder") != 0)
        status =
            attn__fail(context, ATTN_ERROR_UNSUPPORTED, "%s: the architecture is \"%.60s\", not transformer-encoder",
                       foreign->settings, attn__foreign_architecture(foreign)->name);
    if (status == ATTN_OK)
        status = set_length(encoder, foreign->config, o->max_length);
    attn_model_options how = {.precision = o->precision};
    if (status == ATTN_OK)
        status = attn__model_of_config(&encoder->model, context, attn__foreign_architecture(foreign), foreign->config,
                                       foreign->weights, &how);
    if (status == ATTN_OK && *regression)
        status = load_part(encoder, regression, foreign->names, true);
    if (status == ATTN_OK)
        status = *regression ? load_part(encoder, foreign->weights, foreign->names, false)
                             : attn_weights_load(attn_model_parameters(encoder->model), foreign->weights,
                                                 &(attn_weights_options){.names = foreign->names}, NULL, NULL);
    return status == ATTN_OK ? attn_model_pack_weights(encoder->model) : status;
}

static void describe(attn_encoder *encoder)
{
    const attn_config *config = attn_model_config(encoder->model);
    attn_encoder_info *info = &encoder->info;
    info->dim = attn_config_int(config, "num_hiddens", 0);
    info->vocabulary = attn_config_int(config, "vocab_size", 0);
    info->contacts = attn_config_bool(config, "contacts", false);
    info->masked_head = attn_config_bool(config, "masked_head", false);
    info->protein = info->vocabulary == ATTN__ESM_VOCABULARY && encoder->rotary;
    info->pool = ATTN_POOL_MEAN;
    encoder->mask = info->protein ? ATTN_RESIDUE_MASK : -1;
}

/* Reads the files beside the weights. `given` is the longest text that the caller wants; 0: the directory's. */
static attn_status read_files(attn_encoder *encoder, int64_t given)
{
    describe(encoder);
    if (encoder->info.protein && encoder->info.max_length < 4)
        return attn__fail(encoder->context, ATTN_ERROR_ARGUMENT,
                          "max_length is %lld tokens; a window of a protein must have at least 4",
                          (long long)encoder->info.max_length);
    if (!attn__is_directory(encoder->directory) || encoder->info.protein)
        return ATTN_OK;
    attn_status status = attn__encoder_published(encoder);
    if (status == ATTN_OK)
        status = attn__encoder_tokenizer(encoder);
    encoder->info.max_length = given > 0 ? given : encoder->info.max_length;
    return status == ATTN_OK ? attn_encoder_prompt(encoder, NULL, NULL) : status;
}

static attn_status keep_directory(attn_encoder *encoder, const char *path)
{
    size_t size = strlen(path) + 1;
    if (size > sizeof encoder->directory)
        return attn__fail(encoder->context, ATTN_ERROR_ARGUMENT,
                          "the path \"%.60s...\" has %zu bytes; at most %zu are supported", path, size - 1,
                          sizeof encoder->directory - 1);
    if (!attn_file_exists(path))
        return attn__fail(encoder->context, ATTN_ERROR_NOT_FOUND, "%s: there is no such file or directory", path);
    memcpy(encoder->directory, path, size);
    return attn_tape_create(&encoder->tape, encoder->context);
}

static attn_status load(attn_encoder *encoder, const char *path, const attn_encoder_load_options *o)
{
    attn__foreign foreign = {0};
    attn_status status = keep_directory(encoder, path);
    if (status == ATTN_OK)
        status = read_model(encoder, &foreign, path, o);
    attn__foreign_end(&foreign);
    return status == ATTN_OK ? read_files(encoder, o->max_length) : status;
}

static attn_status done(attn_encoder **encoder, attn_encoder *made, attn_status status)
{
    if (status == ATTN_OK)
        *encoder = made;
    else
        attn_encoder_destroy(made);
    return status;
}

attn_status attn_encoder_wrap(attn_encoder **encoder, attn_model *model, const char *directory)
{
    attn_context *context = attn_model_context(model);
    ATTN__CALL(context);
    *encoder = NULL;
    const char *name = attn_model_architecture(model)->name;
    if (strcmp(name, "transformer-encoder") != 0 || attn_model_dtype(model) != ATTN_F32)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                          "the model is a %s in %s; an encoder must be a transformer-encoder in f32", name,
                          attn_dtype_name(attn_model_dtype(model)));
    attn_encoder *made = attn__alloc_zero(context, sizeof *made);
    if (!made)
        return ATTN_ERROR_MEMORY;
    *made = (attn_encoder){.context = context, .model = model, .borrowed = true};
    const attn_config *config = attn_model_config(model);
    made->info.max_length = attn_config_int(config, "max_len", 0) - attn_config_int(config, "position_offset", 0);
    made->rotary = strcmp(attn_config_text(config, "rotary", "none"), "none") != 0;
    attn_status status = keep_directory(made, directory);
    return done(encoder, made, status == ATTN_OK ? read_files(made, 0) : status);
}

attn_status attn_encoder_load(attn_encoder **encoder, attn_context *context, const char *path,
                              const attn_encoder_load_options *options)
{
    ATTN__CALL(context);
    *encoder = NULL;
    if (ATTN__CHECK_RESERVED(context, options, attn_encoder_load_options) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    attn_encoder_load_options o = options ? *options : (attn_encoder_load_options){0};
    attn_encoder *made = attn__alloc_zero(context, sizeof *made);
    if (!made)
        return ATTN_ERROR_MEMORY;
    made->context = context;
    return done(encoder, made, load(made, path, &o));
}

void attn_encoder_destroy(attn_encoder *encoder)
{
    if (!encoder)
        return;
    attn__encoder_tokenizer_free(encoder);
    attn_config_destroy(encoder->prompts);
    attn__free(encoder->context, encoder->prompt);
    attn_tape_destroy(encoder->tape);
    if (!encoder->borrowed)
        attn_model_destroy(encoder->model);
    attn__free(encoder->context, encoder);
}

const attn_encoder_info *attn_encoder_about(const attn_encoder *encoder)
{
    return &encoder->info;
}

attn_model *attn_encoder_model(const attn_encoder *encoder)
{
    return encoder->model;
}

bool attn__encoder_is_at(attn_context *context, const char *path)
{
    attn__identity is;
    attn_status status = attn__identify(&is, context, path);
    if (status == ATTN_OK && is.form == ATTN__FORM_FILE && is.product == ATTN__PRODUCT_MSA)
        status = attn__identify_tensors(&is); /* a .pt of ESM */
    if (status != ATTN_OK && status != ATTN_ERROR_MEMORY)
        attn_context_clear_error(context); /* loading the model reports it again */
    bool encoder = status == ATTN_OK && is.product == ATTN__PRODUCT_ENCODER;
    attn__identity_end(&is);
    return encoder;
}
