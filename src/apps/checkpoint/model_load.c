/* SPDX-License-Identifier: MIT */
#include "apps/checkpoint/foreign_model.h"
#include "apps/checkpoint/convert.h"
#include "base/context.h"
#include "base/integers.h"
#include "io/file.h"
#include "io/directory.h"

#include <stdio.h>

/* Checks that the path exists, and that the caller gave enough information to load a model from it. */
static attn_status check_wish(attn_context *context, const char *path, const attn_model_load_options *o)
{
    if (ATTN__CHECK_RESERVED(context, o, attn_model_load_options) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    if (!attn_file_exists(path))
        return attn__fail(context, ATTN_ERROR_NOT_FOUND, "%s: there is no such file or directory", path);
    if (!o->config && !o->names && !attn__is_directory(path))
        return attn__fail(
            context, ATTN_ERROR_ARGUMENT,
            "%s: a file of weights alone does not describe its model: give a config, a names file or the directory "
            "of config.json",
            path);
    return ATTN_OK;
}

static attn_status load(attn_model **model, attn_context *context, const char *path, const attn_model_load_options *o,
                        attn__foreign *from)
{
    attn__foreign_wish wish = {.names = o->names, .architecture = o->architecture, .config = o->config};
    attn_model_options how = {.dtype = o->dtype, .precision = o->precision};
    attn_status status = attn__foreign_begin(from, context, path, &wish);
    if (status != ATTN_OK)
        return status;
    bool named = attn_config_text(from->config, "architecture", NULL) != NULL;
    if (!named && !o->config && (from->is.form == ATTN__FORM_CTRANSLATE2 || from->is.form == ATTN__FORM_BERGAMOT))
        return attn__identity_translates(&from->is);
    if (!named && !o->config && from->is.form == ATTN__FORM_HUGGING_FACE)
        return attn__foreign_type_refuse(context, from->settings, from->config);
    if (!named)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "%s: the architecture is unknown: the setting \"architecture\" is missing in %s", path,
                          o->config ? "the config" : from->settings);
    /* the error names no file, because the architecture was given by the caller */
    if ((o->architecture || o->config) && !attn__foreign_architecture(from))
        return attn__fail(context, ATTN_ERROR_NOT_FOUND, "there is no architecture \"%.80s\"",
                          attn_config_text(from->config, "architecture", ""));
    from->report = o->report;
    /* the path is used as it is, because functions that read weights accept a directory */
    snprintf(from->weights, sizeof from->weights, "%s", path);
    return attn__foreign_model(model, context, from, &how);
}

attn_status attn_model_load(attn_model **model, attn_context *context, const char *path,
                            const attn_model_load_options *options)
{
    ATTN__CALL(context);
    static const attn_model_load_options defaults;
    const attn_model_load_options *o = options ? options : &defaults;
    attn__foreign from = {0};
    *model = NULL;
    attn_status status = check_wish(context, path, o);
    if (status == ATTN_OK)
        status = load(model, context, path, o, &from);
    attn__foreign_end(&from);
    return status;
}
