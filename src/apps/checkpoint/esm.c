/* SPDX-License-Identifier: MIT
 *
 * Loads ESM's checkpoints in their published form: {"args": Namespace, "model": state dict}, with fairseq's tensor
 * names. The contact regression is in a separate file.
 */
#include "apps/checkpoint/foreign_model.h"
#include "apps/msa/msa.h"

#include "base/context.h"
#include "io/directory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------- names */

static const char names_file[] = "msa-esm";

static const char *after(const char *name, const char *prefix)
{
    size_t length = strlen(prefix);
    return strncmp(name, prefix, length) == 0 ? name + length : name;
}

static bool keep_name(const char *name, char *to, size_t size)
{
    int n = snprintf(to, size, "%s", name);
    return n >= 0 && (size_t)n < size;
}

static const char *const regression_names[] = {"contact_head.regression.weight", "contact_head.regression.bias"};

/* Selects the tensors that are parameters of the model. The weight of the head is left out, because it is a second
 * copy of the embedding's table. The contact regression is left out, because it is read separately. */
static bool parameter_name(void *user, const char *name, char *to, size_t size)
{
    (void)user;
    return strcmp(name, "lm_head.weight") != 0 && after(name, "contact_head.") == name && keep_name(name, to, size);
}

/* Selects the tensors that must be read before the model can be built. Settings depend on the table of row positions,
 * the head must equal the embedding's table, and the file may contain the contact regression. */
static bool early_name(void *user, const char *name, char *to, size_t size)
{
    (void)user;
    return (strcmp(name, "msa_position_embedding") == 0 || strcmp(name, "lm_head.weight") == 0 ||
            strcmp(name, "embed_tokens.weight") == 0 || strcmp(name, regression_names[0]) == 0) &&
           keep_name(name, to, size);
}

/* ---------------------------------------------------------------------------------------------- arguments */

/* Depending on the age of the file, the names of the arguments have the prefix "encoder_" or no prefix. */
static attn_status copy_arguments(const attn_architecture *a, const attn_config *arguments, attn_config *config)
{
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < attn_config_size(arguments) && status == ATTN_OK; i++) {
        const char *key = attn_config_key(arguments, i), *name = after(after(key, "args."), "encoder_");
        const attn_config_value *value = attn_config_get(arguments, key);
        bool number = value->type == ATTN_CONFIG_TYPE_INT || value->type == ATTN_CONFIG_TYPE_REAL ||
                      value->type == ATTN_CONFIG_TYPE_BOOL;
        for (int k = 0; number && k < a->nkeys && status == ATTN_OK; k++)
            if (strcmp(a->keys[k].name, name) == 0)
                status = attn_config_set(config, name, value);
    }
    return status;
}

static const char regression_ending[] = "-contact-regression.pt";

static attn_status check_architecture(attn_context *context, const char *path, const attn_config *arguments)
{
    const char *name = attn_config_text(arguments, "args.arch", NULL);
    size_t length = strlen(path), ending = sizeof regression_ending - 1;
    if (!name && length > ending && strcmp(path + length - ending, regression_ending) == 0)
        return attn__fail(
            context, ATTN_ERROR_FORMAT,
            "%s: the file has no args.arch, so it is the contact regression alone; give the model's file, whose name "
            "has no %s",
            path, regression_ending);
    if (!name)
        return attn__fail(context, ATTN_ERROR_FORMAT, "%s: the file has no args.arch: it is not a checkpoint of ESM",
                          path);
    if (strcmp(name, "msa_transformer") != 0)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                          "%s: the architecture is \"%.60s\"; expected msa_transformer", path, name);
    return ATTN_OK;
}

/* Sets the settings of row positions from the shape of their table. The shape is used because the checkpoint's
 * arguments do not show that the table of ESM-MSA-1 has one channel. */
static attn_status set_row_positions(const attn_named_list *early, attn_config *config)
{
    const attn_tensor *table = attn_named_find(early, "msa_position_embedding");
    attn_status status = attn_config_set_bool(config, "embed_positions_msa", table != NULL);
    if (status == ATTN_OK && table)
        status = attn_config_set_int(config, "embed_positions_msa_dim", attn_tensor_length(table, -1));
    return status;
}

static attn_status check_tied(attn_context *context, const char *path, const attn_named_list *early)
{
    const attn_tensor *head = attn_named_find(early, "lm_head.weight");
    const attn_tensor *tokens = attn_named_find(early, "embed_tokens.weight");
    if (head && tokens && attn_tensor_size(head) == attn_tensor_size(tokens) &&
        memcmp(attn_tensor_data(head), attn_tensor_data(tokens), (size_t)attn_tensor_size(head) * sizeof(float)) != 0)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                          "%s: lm_head.weight and embed_tokens.weight differ; they must be equal", path);
    return ATTN_OK;
}

/* Makes the config from the arguments and the shapes of a checkpoint. *regression becomes true if the file contains
 * the contact regression. ESM's own files never contain it, but other programs may save all tensors in one file. */
static attn_status read_config(attn_context *context, const char *path, const attn_msa_load_options *options,
                               const attn_name_map *names, attn_config *config, bool *regression)
{
    attn_named_list early = {.context = context, .owns = true};
    attn_weights_options how = {.names = names, .rename = early_name};
    attn_config *arguments = NULL;
    attn_status status = attn_config_create(&arguments, context);
    if (status == ATTN_OK)
        status = attn_weights_read(&early, path, &how, arguments, NULL);
    if (status == ATTN_OK)
        status = check_architecture(context, path, arguments);
    if (status == ATTN_OK)
        status = check_tied(context, path, &early);
    if (status == ATTN_OK)
        status = copy_arguments(attn_architecture_find("msa-transformer"), arguments, config);
    if (status == ATTN_OK)
        status = set_row_positions(&early, config);
    if (status == ATTN_OK)
        status = attn_config_set_text(config, "compat", options->compat ? "esm" : "none");
    *regression = attn_named_find(&early, regression_names[0]) != NULL;
    attn_config_destroy(arguments);
    attn_named_clear(&early);
    return status;
}

/* --------------------------------------------------------------------------------------------- regression */

/* Returns the path of the file with the contact regression: NAME.pt becomes NAME-contact-regression.pt. Returns NULL
 * if there is no memory. Free the path with attn__free. */
static char *path_beside(attn_context *context, const char *path)
{
    size_t length = strlen(path), stem = length > 3 && strcmp(path + length - 3, ".pt") == 0 ? length - 3 : length;
    char *beside = attn__alloc(context, stem + sizeof regression_ending);
    if (beside) {
        memcpy(beside, path, stem);
        memcpy(beside + stem, regression_ending, sizeof regression_ending);
    }
    return beside;
}

static attn_status load_regression(attn_msa *msa, const char *path, const attn_name_map *names)
{
    attn_named_list list = {.context = msa->context};
    attn_weights_options how = {.names = names, .allow_extra = true};
    const attn_named_list *all = attn_model_parameters(msa->model);
    attn_status status = ATTN_OK;
    for (int i = 0; i < 2 && status == ATTN_OK; i++)
        status = attn_named_add(&list, regression_names[i], attn_named_find(all, regression_names[i]));
    if (status == ATTN_OK)
        status = attn_weights_load(&list, path, &how, NULL, NULL);
    msa->has_regression = status == ATTN_OK;
    attn_named_clear(&list);
    return status;
}

static attn_status find_regression(attn_msa *msa, const char *path, const attn_msa_load_options *options,
                                   const attn_name_map *names, bool inside)
{
    if (options->regression)
        return load_regression(msa, options->regression, names);
    char *beside = path_beside(msa->context, path);
    if (!beside)
        return ATTN_ERROR_MEMORY;
    const char *found = attn_file_exists(beside) ? beside : inside ? path : NULL;
    attn_status status = found ? load_regression(msa, found, names) : ATTN_OK;
    attn__free(msa->context, beside);
    return status;
}

/* ------------------------------------------------------------------------------------------------ loading */

attn_status attn__msa_load_checkpoint(attn_msa *msa, const char *path, const attn_msa_load_options *options)
{
    attn_config *config = NULL;
    attn_named_list parameters = {.context = msa->context};
    attn_name_map *names = NULL;
    bool regression = false;
    attn_status status = attn_name_map_read(&names, msa->context, names_file);
    attn_weights_options how = {.names = names, .rename = parameter_name};
    if (status == ATTN_OK)
        status = attn_config_create(&config, msa->context);
    if (status == ATTN_OK)
        status = read_config(msa->context, path, options, names, config, &regression);
    if (status == ATTN_OK)
        status = attn__msa_build(msa, config, &(attn_model_options){.blank = true});
    if (status == ATTN_OK)
        status = attn__msa_without_regression(msa, &parameters);
    if (status == ATTN_OK)
        status = attn_weights_load(&parameters, path, &how, NULL, NULL);
    if (status == ATTN_OK)
        status = find_regression(msa, path, options, names, regression);
    attn_name_map_destroy(names);
    attn_config_destroy(config);
    attn_named_clear(&parameters);
    return status;
}

attn_status attn__msa_load_foreign(attn_msa *msa, const char *path, const attn_msa_load_options *options)
{
    attn__foreign foreign;
    attn_named_list rest = {.context = msa->context}, early = {.context = msa->context, .owns = true};
    attn__foreign_wish wish = {.names = options->names, .architecture = "msa-transformer"};
    attn_status status = attn__foreign_begin(&foreign, msa->context, path, &wish);
    attn_weights_options look = {.names = foreign.names, .rename = early_name};
    attn_weights_options how = {.names = foreign.names, .rename = parameter_name};
    if (status == ATTN_OK)
        status = attn_weights_read(&early, path, &look, NULL, NULL);
    if (status == ATTN_OK)
        status = check_tied(msa->context, path, &early);
    bool inside = attn_named_find(&early, regression_names[0]) != NULL;
    if (status == ATTN_OK)
        status = attn__msa_build_from(msa, foreign.config, path, options);
    if (status == ATTN_OK)
        status = attn__msa_without_regression(msa, &rest);
    if (status == ATTN_OK)
        status = attn_weights_load(&rest, path, &how, NULL, NULL);
    if (status == ATTN_OK)
        status = find_regression(msa, path, options, foreign.names, inside);
    attn_named_clear(&rest);
    attn_named_clear(&early);
    attn__foreign_end(&foreign);
    return status;
}
