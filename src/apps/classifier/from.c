/* SPDX-License-Identifier: MIT
 *
 * Starts the fine-tuning of a classifier for other classes and pictures. The initial model is one of attn or a foreign
 * Vision Transformer.
 */
#include "apps/classifier/classifier.h"

#include "apps/checkpoint/foreign_model.h"
#include "apps/checkpoint/vit.h"
#include "apps/checkpoint/warm_start.h"
#include "base/context.h"
#include "config/keys.h"
#include "io/names/names.h"
#include "models/kind.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct source {
    attn_context *context;
    const char *path;
    const char *names; /* path of a names file; NULL: there is none */
    attn_image_shape shape;
    int64_t classes;
    uint64_t seed;
} source;

static attn_status fail(const source *s, const char *what, int64_t its, int64_t own)
{
    return attn__fail(s->context, ATTN_ERROR_SHAPE,
                      "%s: the model is for %s %" PRId64 ", but the pictures have %" PRId64, s->path, what, its, own);
}

static attn_status check_channels(const source *s, const attn_config *config)
{
    int64_t channels = attn_config_int(config, "in_channels", attn_config_int(config, "channels", s->shape.channels));
    return channels == s->shape.channels ? ATTN_OK : fail(s, "a number of channels of", channels, s->shape.channels);
}

/* ------------------------------------------------------------------------------------------- attn's own */

static attn_status check_size(const source *s, const attn_config *config)
{
    int64_t sides[2] = {s->shape.height, s->shape.width};
    /* If the config has no size, `sides` keeps the size of the new pictures, so that the checks below succeed. */
    (void)attn__config_sides(config, "img_size", sides);
    if (sides[0] != s->shape.height)
        return fail(s, "a height of", sides[0], s->shape.height);
    if (sides[1] != s->shape.width)
        return fail(s, "a width of", sides[1], s->shape.width);
    return check_channels(s, config);
}

static bool counts_classes(const attn_setting *key)
{
    return strcmp(key->name, "num_classes") == 0 || strcmp(key->name, "classes") == 0;
}

/* Makes a model as a config.json or a names file describes it, but with the number of classes of the new training. */
static attn_status build_own(const source *s, const attn_config *file, attn_model **model)
{
    const attn_architecture *architecture = attn_architecture_find(attn_config_text(file, "architecture", ""));
    attn_config *config = NULL;
    if (!architecture)
        return attn__fail(s->context, ATTN_ERROR_UNSUPPORTED, "%s: config.json names no architecture", s->path);
    attn_status status = attn_config_create(&config, s->context);
    if (status == ATTN_OK)
        status = attn_architecture_select(architecture, file, config);
    for (int i = 0; i < architecture->nkeys && status == ATTN_OK; i++)
        if (counts_classes(&architecture->keys[i]))
            status = attn_config_set_int(config, architecture->keys[i].name, s->classes);
    if (status == ATTN_OK)
        status = check_size(s, config);
    if (status == ATTN_OK)
        status =
            attn_model_create(model, s->context, architecture->name, config, &(attn_model_options){.seed = s->seed});
    attn_config_destroy(config);
    return status;
}

/* Makes a model with the settings of a config.json or a names file, and fills its parameters from the checkpoint. */
static attn_status load_by(const source *s, const attn_config *file, const attn_name_map *names, attn_model **model)
{
    const attn__warm_start start = {.context = s->context, .path = s->path, .names = names, .outputs = s->classes};
    attn_status status = build_own(s, file, model);
    return status == ATTN_OK ? attn__warm_start_fill(&start, attn_model_parameters(*model)) : status;
}

/* Reports whether an architecture is a classifier of pictures: it has a setting for the number of classes, and its
 * first input is pictures. */
static bool classifies_pictures(const attn_architecture *a)
{
    bool counts = false;
    for (int i = 0; i < a->nkeys; i++)
        counts = counts || counts_classes(&a->keys[i]);
    return counts && a->ninputs > 0 && strcmp(a->inputs[0].name, "x") == 0;
}

static attn_status load_foreign(const source *s, attn_model **model)
{
    attn__foreign foreign;
    attn_status status = attn__foreign_begin(&foreign, s->context, s->path, &(attn__foreign_wish){.names = s->names});
    if (status == ATTN_OK && !classifies_pictures(attn__foreign_architecture(&foreign)))
        status = attn__fail(s->context, ATTN_ERROR_UNSUPPORTED,
                            "%s: the architecture \"%s\" is not a classifier of pictures", s->names,
                            attn__foreign_architecture(&foreign)->name);
    if (status == ATTN_OK)
        status = load_by(s, foreign.config, foreign.names, model);
    attn__foreign_end(&foreign);
    return status;
}

/* ----------------------------------------------------------------------------------------------- table */

/* Writes one line for each parameter: its name, its shape, and its source (the checkpoint or new). */
static attn_status tell(const source *s, attn__identity *is, const attn_model *model, bool own, attn_bytes *table)
{
    attn_name_map *names = NULL;
    attn_status status = own || s->names ? ATTN_OK : attn__identify_tensors(is);
    const char *builtin = s->names ? s->names : is->tensor_names;
    if (status == ATTN_OK && builtin)
        status = attn_name_map_read(&names, s->context, builtin);
    const attn__warm_start start = {.context = s->context, .path = s->path, .names = names, .outputs = s->classes};
    if (status == ATTN_OK)
        status = attn__warm_start_tell(&start, model, table);
    attn_name_map_destroy(names);
    return status;
}

/* ----------------------------------------------------------------------------------------------- whole */

attn_status attn__classifier_from(attn_model **model, attn_context *context, const char *path,
                                  const attn_config *settings, attn_image_shape shape, int64_t classes,
                                  attn_bytes *table)
{
    const source s = {context, path,    attn_config_text(settings, "names", NULL),
                      shape,   classes, (uint64_t)attn_config_int(settings, "seed", 1)};
    const attn_vit_options options = {.num_heads = attn_config_int(settings, "heads", 0),
                                      .img_size = {shape.height, shape.width},
                                      .num_classes = classes,
                                      .seed = s.seed};
    attn__identity is;
    *model = NULL;
    attn_status status = attn__identify(&is, context, s.path);
    bool own = !s.names && is.directory && is.product == ATTN__PRODUCT_CLASSIFIER;
    if (status == ATTN_OK)
        status = s.names ? load_foreign(&s, model)
                 : own   ? load_by(&s, is.config, NULL, model)
                         : attn_vit_load(model, context, s.path, &options);
    if (status == ATTN_OK)
        status = check_channels(&s, attn_model_config(*model));
    if (status == ATTN_OK)
        status = tell(&s, &is, *model, own, table);
    attn__identity_end(&is);
    return status;
}
