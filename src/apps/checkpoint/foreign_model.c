/* SPDX-License-Identifier: MIT
 *
 * Reads descriptions of models: those in directories, and those in checkpoints with foreign tensor names.
 */
#include "apps/checkpoint/foreign_model.h"

#include "apps/checkpoint/detr_settings.h"
#include "apps/checkpoint/encoder_settings.h"
#include "apps/checkpoint/model_config.h"
#include "base/context.h"
#include "io/file.h"
#include "io/names/names.h"
#include "io/directory.h"

#include <stdio.h>
#include <string.h>

/* Checks that the architectures in the names file and in config.json agree, and sets the key "architecture". */
static attn_status check_architecture(attn__foreign *f, attn_context *context, const char *wanted)
{
    const char *file = f->names->file, *name = attn_name_map_architecture(f->names);
    const char *own = attn_config_text(f->config, "architecture", name);
    if (!own)
        return attn__fail(context, ATTN_ERROR_FORMAT,
                          "%s: the line \"arch NAME\" is missing; attn list prints the names", file);
    if (name && strcmp(name, own) != 0)
        return attn__fail(context, ATTN_ERROR_FORMAT, "%s: the architecture is \"%.60s\", but %s says \"%.60s\"", file,
                          name, f->settings, own);
    if (!attn_architecture_find(own))
        return attn__fail(context, ATTN_ERROR_FORMAT,
                          "%s: there is no architecture \"%.60s\"; attn list prints the names",
                          name ? file : f->settings, own);
    if (wanted && strcmp(own, wanted) != 0)
        return attn__fail(context, ATTN_ERROR_FORMAT, "%s: the architecture is \"%.60s\", not %s", file, own, wanted);
    return name ? attn_config_set_text(f->config, "architecture", name) : ATTN_OK;
}

/* Checks that the number of heads is given. It must be given, because it has no default and cannot be determined
 * from shapes. */
static attn_status check_heads(const attn__foreign *foreign, attn_context *context)
{
    const attn_architecture *a = attn__foreign_architecture(foreign);
    const char *missing = NULL;
    for (int i = 0; i < a->nkeys; i++) {
        if (!strstr(a->keys[i].name, "heads"))
            continue;
        if (attn_config_get(foreign->config, a->keys[i].name))
            return ATTN_OK;
        missing = missing ? missing : a->keys[i].name;
    }
    return missing ? attn__fail(context, ATTN_ERROR_FORMAT,
                                "%s: no tensor shows the number of heads; add the line \"set %s=N\" to this file",
                                foreign->names->file, missing)
                   : ATTN_OK;
}

/* Sets the paths of the settings file and of the weights. If `named` is true and the path is a file, both paths are
 * this file. Otherwise the path is a directory: the settings are in its config.json, and the path of the weights is its
 * usual file, or the directory itself if `named` is true. */
static attn_status find_files(attn__foreign *f, bool named)
{
    attn_context *context = f->is.context;
    attn_status status = named && !f->is.directory ? attn__path_copy(context, f->settings, f->is.path)
                                                   : attn__path(context, f->settings, f->is.path, "config.json");
    if (status != ATTN_OK)
        return status;
    return named ? attn__path_copy(context, f->weights, f->is.path) : attn__identity_weights(&f->is, f->weights);
}

/* Adds the settings that the names file contains, and the settings that its rules derive from the checkpoint's
 * shapes. */
static attn_status measure(attn__foreign *f, const char *names, const char *architecture)
{
    attn_context *context = f->is.context;
    attn_checkpoint *weights = NULL;
    attn_status status = attn_name_map_read(&f->names, context, names);
    if (status == ATTN_OK)
        status = check_architecture(f, context, architecture);
    bool detr = status == ATTN_OK && strcmp(attn_config_text(f->config, "architecture", ""), "detr") == 0;
    if (detr)
        status = attn__detr_settings(&f->config, &f->is, f->settings);
    if (status == ATTN_OK)
        status = attn_checkpoint_open(&weights, context, f->weights, &(attn_weights_options){.names = f->names}, NULL);
    if (status == ATTN_OK)
        status = attn_name_map_infer_config(f->names, weights, f->config);
    if (status == ATTN_OK && detr && strcmp(f->settings, f->weights) != 0 && attn_file_exists(f->settings))
        status = attn__detr_agrees(f->config, context, f->settings);
    attn_checkpoint_close(weights);
    return status == ATTN_OK ? check_heads(f, context) : status;
}

attn_status attn__foreign_open(attn__foreign *foreign, attn_context *context, const char *path)
{
    *foreign = (attn__foreign){0};
    return attn__identify(&foreign->is, context, path);
}

/* Takes the config.json that was read, or reads it to report why it could not be read. */
static attn_status take_config(attn__foreign *foreign)
{
    foreign->config = foreign->is.config;
    foreign->is.config = NULL;
    return foreign->config ? ATTN_OK : attn_config_read(&foreign->config, foreign->is.context, foreign->settings);
}

attn_status attn__foreign_describe(attn__foreign *foreign, const attn__foreign_wish *wish)
{
    attn_context *context = foreign->is.context;
    const attn_config *given = wish->config;
    const char *names = wish->names;
    attn_status status = find_files(foreign, names || given);
    bool read = !given && (!names || (foreign->is.directory && attn_file_exists(foreign->settings)));
    if (status == ATTN_OK)
        status = read ? take_config(foreign) : attn_config_create(&foreign->config, context);
    for (int64_t i = 0; given && status == ATTN_OK && i < attn_config_size(given); i++) {
        const char *key = attn_config_key(given, i);
        status = attn_config_set(foreign->config, key, attn_config_get(given, key));
    }
    if (status == ATTN_OK && read && foreign->is.names) {
        /* an encoder of Hugging Face, whose config.json names a built-in names file */
        names = names ? names : foreign->is.names;
        status = attn__encoder_settings(&foreign->config, context, foreign->settings);
        snprintf(foreign->weights, sizeof foreign->weights, "%s", foreign->is.path);
    }
    if (status == ATTN_OK && wish->architecture && !names)
        status = attn_config_set_text(foreign->config, "architecture", wish->architecture);
    return status == ATTN_OK && names ? measure(foreign, names, wish->architecture) : status;
}

attn_status attn__foreign_begin(attn__foreign *foreign, attn_context *context, const char *path,
                                const attn__foreign_wish *wish)
{
    attn_status status = attn__foreign_open(foreign, context, path);
    return status == ATTN_OK ? attn__foreign_describe(foreign, wish) : status;
}

void attn__foreign_end(attn__foreign *foreign)
{
    attn__identity_end(&foreign->is);
    attn_name_map_destroy(foreign->names);
    attn_config_destroy(foreign->config);
    *foreign = (attn__foreign){0};
}

const attn_architecture *attn__foreign_architecture(const attn__foreign *foreign)
{
    return attn_architecture_find(attn_config_text(foreign->config, "architecture", ""));
}

attn_status attn__foreign_model(attn_model **model, attn_context *context, const attn__foreign *foreign,
                                const attn_model_options *options)
{
    const attn_architecture *architecture = attn__foreign_architecture(foreign);
    attn_weights_options how = {.names = foreign->names};
    *model = NULL;
    if (!architecture)
        return attn__foreign_type_refuse(context, foreign->settings, foreign->config);
    attn_status status =
        attn__model_of_config(model, context, architecture, foreign->config, foreign->weights, options);
    if (status == ATTN_OK)
        status = attn_weights_load(attn_model_parameters(*model), foreign->weights, &how, NULL, foreign->report);
    if (status != ATTN_OK) {
        attn_model_destroy(*model);
        *model = NULL;
    }
    return status;
}
