/* SPDX-License-Identifier: MIT */
#include "apps/checkpoint/model_config.h"

#include "apps/checkpoint/identify.h"
#include "apps/checkpoint/model_directory.h"
#include "attn/io.h"
#include "base/context.h"
#include "io/tensors/array.h"
#include "io/tensors/weights.h"
#include "models/kind.h"
#include "io/json.h"

#include <string.h>

attn_status attn__model_config_create(attn_config **config, const attn_model *model, const attn_config *settings,
                                      const char *const *kept)
{
    const attn_config *own = attn_model_config(model);
    attn_status status = attn_config_create(config, attn_model_context(model));
    if (status == ATTN_OK)
        status = attn_config_set_text(*config, "architecture", attn_model_architecture(model)->name);
    for (int64_t i = 0; status == ATTN_OK && i < attn_config_size(own); i++)
        status = attn_config_set(*config, attn_config_key(own, i), attn_config_get(own, attn_config_key(own, i)));
    for (int i = 0; status == ATTN_OK && kept && kept[i]; i++)
        status = attn_config_set(*config, kept[i], attn_config_get(settings, kept[i]));
    return status;
}

attn_status attn__model_config_write(const attn_config *config, attn_context *context, const char *directory)
{
    char path[ATTN__PATH];
    attn_status status = attn__path(context, path, directory, "config.json");
    return status == ATTN_OK ? attn_config_write(config, context, path) : status;
}

attn_status attn__model_of_config(attn_model **model, attn_context *context, const attn_architecture *architecture,
                                  const attn_config *file, const char *weights, const attn_model_options *options)
{
    attn_config *config = NULL;
    attn_model_options o = options ? *options : (attn_model_options){0};
    o.blank = true;
    attn_status status = attn_weights_bound(context, weights, &o.limit);
    if (status == ATTN_OK)
        status = attn_config_create(&config, context);
    if (status == ATTN_OK)
        status = attn_architecture_select(architecture, file, config);
    if (status == ATTN_OK)
        status = attn_model_create(model, context, architecture->name, config, &o);
    attn_config_destroy(config);
    return status;
}

attn_status attn__model_of_directory(attn_model **model, attn_context *context, const char *directory)
{
    attn__identity is;
    char weights[ATTN__PATH];
    *model = NULL;
    attn_status status = attn__identify(&is, context, directory);
    if (status == ATTN_OK)
        status = attn__identity_weights(&is, weights);
    if (status == ATTN_OK)
        status = is.architecture
                     ? attn__model_of_config(model, context, is.architecture, is.config, weights, NULL)
                     : attn__fail(context, ATTN_ERROR_FORMAT,
                                  "%s: the directory has no config.json that names an architecture", directory);
    attn__identity_end(&is);
    return status;
}

attn_status attn__model_copy(attn_model **copy, const attn_model *from, const attn_config *over)
{
    attn_context *context = attn_model_context(from);
    const attn_config *parts[] = {attn_model_config(from), over};
    const attn_model_options blank = {.blank = true};
    attn_config *config = NULL;
    *copy = NULL;
    attn_status status = attn_config_create(&config, context);
    for (int p = 0; p < 2; p++)
        for (int64_t i = 0; status == ATTN_OK && i < attn_config_size(parts[p]); i++) {
            const char *key = attn_config_key(parts[p], i);
            status = attn_config_set(config, key, attn_config_get(parts[p], key));
        }
    if (status == ATTN_OK)
        status = attn_model_create(copy, context, attn_model_architecture(from)->name, config, &blank);
    if (status == ATTN_OK)
        status = attn_weights_assign(attn_model_parameters(*copy), attn_model_parameters(from), NULL, NULL);
    attn_config_destroy(config);
    return status;
}

attn_status attn__model_tell_taken(const attn_model *model, const char *fresh, attn_bytes *table)
{
    const attn_named_list *list = attn_model_parameters(model);
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < list->n && status == ATTN_OK; i++) {
        char shape[128];
        const attn_named *parameter = &list->items[i];
        bool anew = fresh && strncmp(parameter->name, fresh, strlen(fresh)) == 0;
        attn__array_shape_text(shape, attn_tensor_rank(parameter->tensor), attn_tensor_shape(parameter->tensor));
        status = attn__bytes_appendf(attn_model_context(model), table, "%s\t%s\t%s\n", parameter->name, shape,
                                     anew ? "anew: the checkpoint has none" : "taken");
    }
    return status;
}
