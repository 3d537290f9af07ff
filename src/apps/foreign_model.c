/* SPDX-License-Identifier: MIT
 * Models in checkpoints of foreign names. */
#include "apps/foreign_model.h"

#include "apps/model_config.h"
#include "base/context.h"
#include "io/names.h"

#include <string.h>

static attn_status check_architecture(const attn_names *names, attn_context *context, const char *wanted)
{
    const char *name = attn_names_architecture(names);
    if (!name)
        return attn__fail(context, ATTN_FORMAT, "%s: no line \"arch NAME\"; attn list has the names", names->file);
    if (!attn_architecture_find(name))
        return attn__fail(context, ATTN_FORMAT, "%s: there is no architecture \"%.60s\"; attn list has their names",
                          names->file, name);
    if (wanted && strcmp(name, wanted) != 0)
        return attn__fail(context, ATTN_FORMAT, "%s: of the architecture \"%.60s\", not %s", names->file, name, wanted);
    return ATTN_OK;
}

/* Another number of heads would fit the same shapes: a default would be a guess. */
static attn_status check_heads(const attn__foreign *foreign, attn_context *context)
{
    const attn_architecture *a = attn_architecture_find(attn_names_architecture(foreign->names));
    const char *missing = NULL;
    for (int i = 0; i < a->nkeys; i++) {
        if (!strstr(a->keys[i].name, "heads"))
            continue;
        if (attn_config_get(foreign->config, a->keys[i].name))
            return ATTN_OK;
        missing = missing ? missing : a->keys[i].name;
    }
    return missing ? attn__fail(context, ATTN_FORMAT,
                                "%s: the number of heads is in no tensor; the file needs a line \"set %s=N\"",
                                foreign->names->file, missing)
                   : ATTN_OK;
}

attn_status attn__foreign_begin(attn__foreign *foreign, attn_context *context, const char *path, const char *names,
                                const char *architecture)
{
    attn_weights *weights = NULL;
    *foreign = (attn__foreign){0};
    attn_status status = attn_names_read(&foreign->names, context, names);
    if (status == ATTN_OK)
        status = check_architecture(foreign->names, context, architecture);
    if (status == ATTN_OK)
        status = attn_weights_open(&weights, context, path, &(attn_weights_options){.names = foreign->names}, NULL);
    if (status == ATTN_OK)
        status = attn_config_create(&foreign->config, context);
    if (status == ATTN_OK)
        status = attn_names_measure(foreign->names, weights, foreign->config);
    if (status == ATTN_OK)
        status = check_heads(foreign, context);
    if (status == ATTN_OK)
        status = attn_config_set_text(foreign->config, "architecture", attn_names_architecture(foreign->names));
    attn_weights_close(weights);
    return status;
}

void attn__foreign_end(attn__foreign *foreign)
{
    attn_names_destroy(foreign->names);
    attn_config_destroy(foreign->config);
    *foreign = (attn__foreign){0};
}

attn_status attn__foreign_model(attn_model **model, attn_context *context, const char *path, const char *names,
                                const char *architecture)
{
    attn__foreign foreign;
    *model = NULL;
    attn_status status = attn__foreign_begin(&foreign, context, path, names, architecture);
    attn_weights_options how = {.names = foreign.names};
    if (status == ATTN_OK)
        status = attn__model_of_config(model, context, attn_architecture_find(attn_names_architecture(foreign.names)),
                                       foreign.config, path);
    if (status == ATTN_OK)
        status = attn_weights_load(attn_model_parameters(*model), path, &how, NULL, NULL);
    if (status != ATTN_OK) {
        attn_model_destroy(*model);
        *model = NULL;
    }
    attn__foreign_end(&foreign);
    return status;
}
