/* SPDX-License-Identifier: MIT
 * config.json of a model's directory, and the model that it describes. */
#include "apps/model_config.h"

#include "apps/directory.h"
#include "attn/io.h"
#include "base/context.h"

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
    return status == ATTN_OK ? attn_config_write(context, config, path) : status;
}

attn_status attn__model_of_config(attn_model **model, attn_context *context, const attn_architecture *architecture,
                                  const attn_config *file, const char *weights)
{
    attn_config *config = NULL;
    attn_model_options options = {.blank = true};
    attn_status status = attn_weights_bound(context, weights, &options.limit);
    if (status == ATTN_OK)
        status = attn_config_create(&config, context);
    if (status == ATTN_OK)
        status = attn_architecture_select(architecture, file, config);
    if (status == ATTN_OK)
        status = attn_model_create(model, context, architecture->name, config, &options);
    attn_config_destroy(config);
    return status;
}

attn_config *attn__model_config_try(attn_context *context, const char *directory)
{
    char path[ATTN__PATH];
    attn_config *config = NULL;
    if (attn_context_status(context) != ATTN_OK)
        return NULL;
    bool read = attn__path(context, path, directory, "config.json") == ATTN_OK &&
                attn_config_read(&config, context, path) == ATTN_OK;
    if (!read && attn_context_status(context) != ATTN_MEMORY) /* then nobody knows what it is */
        attn_context_clear(context);                          /* whoever loads it says what is wrong */
    return read ? config : NULL;
}

bool attn__model_config_names(attn_context *context, const char *directory, const char *architecture)
{
    attn_config *config = attn__model_config_try(context, directory);
    bool is = config && strcmp(attn_config_text(config, "architecture", ""), architecture) == 0;
    attn_config_destroy(config);
    return is;
}
