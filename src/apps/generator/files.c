/* SPDX-License-Identifier: MIT
 * Writes and loads a generator's directory. */
#include "apps/generator/generator.h"

#include "apps/checkpoint/foreign_model.h"
#include "apps/checkpoint/model_directory.h"
#include "apps/checkpoint/model_config.h"
#include "base/context.h"

#include <string.h>

/* Settings of the training that determine how images were split. They are written to config.json. */
static const char *const kept[] = {"seed", "valid", "test", NULL};

/* ---------------------------------------------------------------------------------------------- writing */

attn_status attn__generator_write(const attn_model *model, const attn_config *settings, const char *directory)
{
    attn_context *context = attn_model_context(model);
    attn_config *config = NULL;
    attn_status status = attn__model_config_create(&config, model, settings, kept);
    if (status == ATTN_OK)
        status = attn__model_config_write(config, context, directory);
    attn_config_destroy(config);
    return status;
}

/* ---------------------------------------------------------------------------------------------- loading */

/* Keys in config.json that concern images. The architecture's own keys are checked elsewhere. */
static const attn_setting input_keys[] = {
    {"seed", ATTN_CONFIG_TYPE_INT, "1", 0, 9e15, NULL, "of the split"},
    {"valid", ATTN_CONFIG_TYPE_REAL, "0.05", 0, 0.9, NULL, "share for validation"},
    {"test", ATTN_CONFIG_TYPE_REAL, "0.1", 0, 0.9, NULL, "share for testing"},
    {"width", ATTN_CONFIG_TYPE_INT, NULL, 1, 4096, NULL, "pixels"},
    {"height", ATTN_CONFIG_TYPE_INT, NULL, 1, 4096, NULL, "pixels"},
    {"channels", ATTN_CONFIG_TYPE_INT, NULL, 1, 3, NULL, "1 or 3"},
    {"frames", ATTN_CONFIG_TYPE_INT, "1", 1, 4096, NULL, "of a video; 1: pictures"},
    {"levels", ATTN_CONFIG_TYPE_INT, "256", 1, 256, NULL, "of a sample"},
};

static attn_status read_inputs(attn_generator *g, const char *path)
{
    static const attn__keys table = {.keys = input_keys, .n = sizeof input_keys / sizeof *input_keys};
    attn__keys_options of_file = {.name = path, .refusal = ATTN_ERROR_FORMAT, .select = true};
    attn_config *checked;
    attn_status status = attn__product_check(g->context, path, g->config, ATTN__PRODUCT_GENERATOR);
    if (status == ATTN_OK)
        status = attn__keys_resolve(&checked, g->context, &table, g->config, &of_file);
    if (status != ATTN_OK)
        return status;
    g->shape = (attn_image_shape){attn_config_int(checked, "width", 1), attn_config_int(checked, "height", 1),
                                  attn_config_int(checked, "channels", 1), attn_config_int(checked, "frames", 1)};
    g->levels = attn_config_int(checked, "levels", 256);
    attn_config_destroy(checked);
    return g->shape.channels != 2
               ? ATTN_OK
               : attn__fail(g->context, ATTN_ERROR_FORMAT, "%s: \"channels\" is 2; allowed: 1, 3", path);
}

static attn_status load_parts(attn_generator *g, const char *path, const char *names)
{
    attn__foreign from;
    attn__foreign_wish wish = {.names = names, .architecture = names ? "axial-transformer" : NULL};
    attn_status status = attn__foreign_begin(&from, g->context, path, &wish);
    g->config = from.config;
    if (status == ATTN_OK)
        status = read_inputs(g, from.settings);
    if (status == ATTN_OK)
        status = attn__foreign_model(&g->model, g->context, &from, NULL);
    from.config = NULL;
    attn__foreign_end(&from);
    return status;
}

attn_status attn_generator_load(attn_generator **generator, attn_context *context, const char *path, const char *names)
{
    ATTN__CALL(context);
    *generator = NULL;
    attn_generator *made = attn__alloc_zero(context, sizeof *made);
    if (!made)
        return ATTN_ERROR_MEMORY;
    made->context = context;
    attn_status status = load_parts(made, path, names);
    if (status != ATTN_OK) {
        attn_generator_destroy(made);
        return status;
    }
    *generator = made;
    return ATTN_OK;
}

void attn_generator_destroy(attn_generator *g)
{
    if (!g)
        return;
    attn_model_destroy(g->model);
    attn_config_destroy(g->config);
    attn__free(g->context, g);
}

attn_model *attn_generator_model(const attn_generator *g)
{
    return g->model;
}

int64_t attn_generator_frames(const attn_generator *g)
{
    return g->shape.frames;
}

attn_image_shape attn_generator_shape(const attn_generator *g)
{
    return g->shape;
}

int64_t attn_generator_levels(const attn_generator *g)
{
    return g->levels;
}
