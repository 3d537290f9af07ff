/* SPDX-License-Identifier: MIT
 *
 * Creates, loads and saves MSA Transformers.
 */
#include "apps/checkpoint/identify.h"
#include "apps/checkpoint/model_directory.h"
#include "apps/checkpoint/model_config.h"
#include "apps/msa/msa.h"

#include "apps/translator/translator.h"
#include "base/context.h"
#include "io/directory.h"

#include <stdio.h>
#include <string.h>

static const char regression_prefix[] = "contact_head.regression.";

attn_status attn__msa_build(attn_msa *msa, const attn_config *config, const attn_model_options *options)
{
    return attn_model_create(&msa->model, msa->context, "msa-transformer", config, options);
}

attn_status attn__msa_without_regression(const attn_msa *msa, attn_named_list *list)
{
    const attn_named_list *all = attn_model_parameters(msa->model);
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < all->n && status == ATTN_OK; i++)
        if (strncmp(all->items[i].name, regression_prefix, sizeof regression_prefix - 1) != 0)
            status = attn_named_add(list, all->items[i].name, all->items[i].tensor);
    return status;
}

static attn_status start(attn_msa **msa, attn_context *context)
{
    *msa = attn__alloc_zero(context, sizeof **msa);
    if (!*msa)
        return ATTN_ERROR_MEMORY;
    (*msa)->context = context;
    return attn_tape_create(&(*msa)->tape, context);
}

static attn_status done(attn_msa **msa, attn_status status)
{
    if (status != ATTN_OK) {
        attn_msa_destroy(*msa);
        *msa = NULL;
    }
    return status;
}

attn_status attn_msa_create(attn_msa **msa, attn_context *context, const attn_config *config, uint64_t seed)
{
    ATTN__CALL(context);
    attn_status status = start(msa, context);
    if (status == ATTN_OK)
        status = attn__msa_build(*msa, config, &(attn_model_options){.seed = seed});
    return done(msa, status);
}

attn_status attn_msa_load(attn_msa **msa, attn_context *context, const char *path, const attn_msa_load_options *options)
{
    ATTN__CALL(context);
    *msa = NULL;
    if (ATTN__CHECK_RESERVED(context, options, attn_msa_load_options) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    attn_msa_load_options o = options ? *options : (attn_msa_load_options){0};
    attn_status status = start(msa, context);
    if (status == ATTN_OK && !attn_file_exists(path))
        status = attn__fail(context, ATTN_ERROR_NOT_FOUND, "%s: no such file or directory", path);
    if (status == ATTN_OK)
        status = o.names                        ? attn__msa_load_foreign(*msa, path, &o)
                 : attn__ends_with(path, ".pt") ? attn__msa_load_checkpoint(*msa, path, &o)
                                                : attn__msa_load_directory(*msa, path, &o);
    return done(msa, status);
}

void attn_msa_destroy(attn_msa *msa)
{
    if (!msa)
        return;
    attn_tape_destroy(msa->tape);
    attn_model_destroy(msa->model);
    attn__free(msa->context, msa);
}

attn_model *attn_msa_model(const attn_msa *msa)
{
    return msa->model;
}

bool attn_msa_has_regression(const attn_msa *msa)
{
    return msa->has_regression;
}

void attn_msa_set_regression(attn_msa *msa, const float *weights, float bias)
{
    const attn__msa *m = attn__msa_of(msa->model);
    memcpy(attn_tensor_data(m->regression.weight), weights, (size_t)(m->layers * m->heads) * sizeof *weights);
    memcpy(attn_tensor_data(m->regression.bias), &bias, sizeof bias);
    msa->has_regression = true;
}

/* ---------------------------------------------------------------------------------------------- directory */

attn_status attn__msa_write_config(const attn_model *model, const char *regression, const char *directory)
{
    attn_config *config = NULL;
    attn_status status = attn__model_config_create(&config, model, NULL, NULL);
    if (status == ATTN_OK)
        status = attn_config_set_text(config, "contact_regression", regression);
    if (status == ATTN_OK)
        status = attn__model_config_write(config, attn_model_context(model), directory);
    attn_config_destroy(config);
    return status;
}

attn_status attn_msa_save(const attn_msa *msa, const char *directory)
{
    ATTN__CALL(msa->context);
    char path[ATTN__PATH];
    attn_named_list rest = {.context = msa->context};
    const attn_named_list *all = attn_model_parameters(msa->model);
    attn_status status = attn_directory_create(msa->context, directory);
    if (status == ATTN_OK)
        status = attn__path(msa->context, path, directory, "model.safetensors");
    if (status == ATTN_OK && !msa->has_regression)
        status = attn__msa_without_regression(msa, &rest);
    if (status == ATTN_OK)
        status = attn_safetensors_write(msa->has_regression ? all : &rest, path, NULL);
    if (status == ATTN_OK)
        status = attn__msa_write_config(msa->model, msa->has_regression ? "fitted" : "none", directory);
    attn_named_clear(&rest);
    return status;
}

attn_status attn__msa_build_from(attn_msa *msa, const attn_config *file, const char *weights,
                                 const attn_msa_load_options *options)
{
    attn_config *config = NULL;
    attn_status status = attn_config_create(&config, msa->context);
    if (status == ATTN_OK)
        status = attn_architecture_select(attn_architecture_find("msa-transformer"), file, config);
    if (status == ATTN_OK && options->compat)
        status = attn_config_set_text(config, "compat", "esm");
    if (status == ATTN_OK)
        status = attn__model_of_config(&msa->model, msa->context, attn_architecture_find("msa-transformer"), config,
                                       weights, NULL);
    attn_config_destroy(config);
    return status;
}

static bool regression_name(void *user, const char *name, char *to, size_t size)
{
    (void)user;
    return strncmp(name, regression_prefix, sizeof regression_prefix - 1) == 0 &&
           snprintf(to, size, "%s", name) < (int)size;
}

/* Reads the state of the contact regression from config.json. If the key is missing, and the file of weights has a
 * regression, the regression counts as fitted. This is the case for files that Python's save wrote. */
static attn_status regression_of(attn_context *context, const attn_config *file, const char *weights, const char **kind)
{
    attn_named_list found = {.context = context, .owns = true};
    *kind = attn_config_text(file, "contact_regression", NULL);
    if (*kind)
        return ATTN_OK;
    attn_status status =
        attn_weights_read(&found, weights, &(attn_weights_options){.rename = regression_name}, NULL, NULL);
    *kind = found.n > 0 ? "fitted" : "none";
    attn_named_clear(&found);
    return status;
}

/* Loads the model `is`, with the weights of the file `weights`. NULL: those of the directory. */
static attn_status load_identified(attn_msa *msa, attn__identity *is, const char *file_of_weights,
                                   const attn_msa_load_options *options)
{
    char weights[ATTN__PATH];
    attn_config *file = NULL;
    attn_named_list rest = {.context = msa->context};
    attn_status status =
        file_of_weights ? attn__path_copy(msa->context, weights, file_of_weights) : attn__identity_weights(is, weights);
    if (status == ATTN_OK)
        status = attn__identity_config(is, &file);
    if (status == ATTN_OK)
        status = attn__product_check(msa->context, is->settings, file, ATTN__PRODUCT_MSA);
    if (status == ATTN_OK)
        status = attn__msa_build_from(msa, file, weights, options);
    const char *regression = "none";
    if (status == ATTN_OK)
        status = regression_of(msa->context, file, weights, &regression);
    bool stored = strcmp(regression, "none") != 0;
    msa->has_regression = strcmp(regression, "fitted") == 0;
    if (status == ATTN_OK)
        status = attn__msa_without_regression(msa, &rest);
    if (status == ATTN_OK)
        status = attn_weights_load(stored ? attn_model_parameters(msa->model) : &rest, weights, NULL, NULL, NULL);
    attn_config_destroy(file);
    attn_named_clear(&rest);
    return status;
}

/* "DIR" and "DIR/model.safetensors" mean the same. */
attn_status attn__msa_load_directory(attn_msa *msa, const char *path, const attn_msa_load_options *options)
{
    attn__identity is = {0};
    bool file = attn__ends_with(path, ".safetensors");
    char *directory = file ? attn__path_parent(msa->context, path) : attn__strdup(msa->context, path);
    attn_status status = directory ? attn__identify(&is, msa->context, directory) : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK && (!is.directory || !attn_file_exists(is.settings)))
        status =
            attn__fail(msa->context, ATTN_ERROR_FORMAT,
                       "%s is not a model: expected a published checkpoint (.pt), or a directory with config.json and "
                       "model.safetensors",
                       path);
    if (status == ATTN_OK)
        status = load_identified(msa, &is, file ? path : NULL, options);
    attn__identity_end(&is);
    attn__free(msa->context, directory);
    return status;
}
