/* SPDX-License-Identifier: MIT
 *
 * Recognizes the kind of a foreign checkpoint, and writes foreign checkpoints in this library's format.
 */
#include "apps/checkpoint/convert.h"

#include "apps/classifier/classifier.h"
#include "apps/checkpoint/marian.h"
#include "apps/checkpoint/model_directory.h"
#include "apps/checkpoint/model_config.h"
#include "apps/checkpoint/vit_config.h"
#include "base/context.h"
#include "config/keys.h"
#include "io/tensors/adapter.h"
#include "io/file.h"
#include "io/directory.h"
#include "io/names/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------- kinds */

attn_status attn__checkpoint_kind(attn_checkpoint_kind *kind, attn__identity *is)
{
    *kind = is->form == ATTN__FORM_MARIAN ? ATTN_CHECKPOINT_MARIAN : ATTN_CHECKPOINT_OTHER;
    attn_status status = *kind == ATTN_CHECKPOINT_MARIAN ? ATTN_OK : attn__identify_tensors(is);
    const char *names = is->tensor_names;
    if (status == ATTN_OK && names && strcmp(names, "msa-esm") == 0 && attn_config_get(is->saved, "args.arch"))
        *kind = ATTN_CHECKPOINT_MSA;
    else if (status == ATTN_OK && names && strncmp(names, "vit-", 4) == 0)
        *kind = ATTN_CHECKPOINT_VIT;
    return status;
}

attn_status attn_checkpoint_kind_of(attn_checkpoint_kind *kind, attn_context *context, const char *path)
{
    ATTN__CALL(context);
    attn__identity is;
    *kind = ATTN_CHECKPOINT_OTHER;
    attn_status status = attn__identify(&is, context, path);
    if (status == ATTN_OK)
        status = attn__checkpoint_kind(kind, &is);
    attn__identity_end(&is);
    return status;
}

/* ------------------------------------------------------------------------------------------------ models */

static attn_status save_weights(const attn_model *model, const char *directory)
{
    char path[ATTN__PATH];
    attn_status status = attn__path(attn_model_context(model), path, directory, "model.safetensors");
    return status == ATTN_OK ? attn_safetensors_write(attn_model_parameters(model), path, NULL) : status;
}

attn_status attn_model_save(const attn_model *model, const char *directory)
{
    ATTN__CALL(attn_model_context(model));
    attn_config *config = NULL;
    attn_status status = attn_directory_create(attn_model_context(model), directory);
    if (status == ATTN_OK)
        status = attn__model_config_create(&config, model, NULL, NULL);
    /* Weights are written before config.json. Saving packed weights fails, and config.json must then stay unchanged. */
    if (status == ATTN_OK)
        status = save_weights(model, directory);
    if (status == ATTN_OK)
        status = attn__model_config_write(config, attn_model_context(model), directory);
    attn_config_destroy(config);
    return status;
}

/* The class names come from id2label, or from timm's label_names. A class without a name is named by its number. */
static attn_status describe(attn_config **config, const attn_model *model, const attn_config *labels,
                            const attn__pixels *pixels)
{
    enum { MOST = 128 };
    attn_context *context = attn_model_context(model);
    const attn_config *own = attn_model_config(model);
    int64_t n = attn_config_int(own, "num_classes", 0), sides[2] = {0, 0};
    char **names = attn__alloc(context, attn__size_mul((size_t)n, sizeof *names));
    char *text = names ? attn__alloc(context, attn__size_mul((size_t)n, MOST)) : NULL;
    const attn_config_value *named = attn_config_get(labels, "label_names");
    named = named && named->type == ATTN_CONFIG_TYPE_TEXTS ? named : NULL;
    attn_config *settings = NULL; /* default settings, because there was no training */
    attn_status status = text ? attn_trainer_settings(&settings, context, "classify", NULL) : ATTN_ERROR_MEMORY;
    for (int64_t i = 0; status == ATTN_OK && i < n; i++) {
        char key[40], number[24];
        snprintf(key, sizeof key, "id2label.%lld", (long long)i);
        snprintf(number, sizeof number, "%lld", (long long)i);
        names[i] = text + i * MOST;
        const char *label = named && i < named->n ? named->texts[i] : number;
        snprintf(names[i], MOST, "%s", attn_config_text(labels, key, label));
    }
    (void)attn__config_sides(own, "img_size", sides);
    attn_image_shape shape = {sides[1], sides[0], attn_config_int(own, "in_channels", 3), 1};
    if (status == ATTN_OK)
        status = attn__classifier_describe(config, model, settings, shape, pixels, names, n);
    attn_config_destroy(settings);
    attn__free(context, text);
    attn__free(context, names);
    return status;
}

attn_status attn__vit_classifier(attn_model **model, attn_config **config, attn_context *context, const char *path,
                                 const attn_vit_options *options, const attn_pixel_scale *scale)
{
    attn__vit_config beside;
    attn__pixels pixels;
    *config = NULL;
    attn_status status = attn__vit_load(model, context, path, options, &beside);
    int64_t channels = status == ATTN_OK ? attn_config_int(attn_model_config(*model), "in_channels", 3) : 0;
    int64_t sides[2] = {0, 0};
    if (status == ATTN_OK)
        (void)attn__config_sides(attn_model_config(*model), "img_size", sides);
    if (status == ATTN_OK && channels != 1 && channels != 3)
        status = attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                            "%s: the model reads pictures of %lld channels; a classifier must read 1 or 3", path,
                            (long long)channels);
    if (status == ATTN_OK)
        status = attn__vit_pixels(&beside, sides, scale, &pixels);
    if (status == ATTN_OK)
        status = describe(config, *model, beside.config, &pixels);
    attn__vit_config_close(&beside);
    return status;
}

attn_status attn_vit_convert(attn_context *context, const char *path, const attn_vit_options *options,
                             const attn_pixel_scale *scale, const char *directory)
{
    ATTN__CALL(context);
    attn_model *model = NULL;
    attn_config *config = NULL;
    attn_status status = attn__vit_classifier(&model, &config, context, path, options, scale);
    if (status == ATTN_OK)
        status = attn_directory_create(context, directory);
    if (status == ATTN_OK)
        status = attn__model_config_write(config, context, directory);
    if (status == ATTN_OK)
        status = save_weights(model, directory);
    attn_config_destroy(config);
    attn_model_destroy(model);
    return status;
}

attn_status attn_marian_convert(attn_context *context, const char *path, const char *directory)
{
    ATTN__CALL(context);
    char weights[ATTN__PATH];
    attn_translator *t;
    attn_status status = attn_translator_load(&t, context, path, NULL);
    if (status != ATTN_OK)
        return status;
    status = attn_directory_create(context, directory);
    if (status == ATTN_OK)
        status = attn__marian_files(context, t->config, t->source, t->target, path, directory);
    if (status == ATTN_OK)
        status = attn__path(context, weights, directory, "model.safetensors");
    if (status == ATTN_OK)
        status = attn__marian_write(context, attn_model_config(t->model), attn_model_parameters(t->model), weights);
    attn_translator_destroy(t);
    return status;
}

/* ----------------------------------------------------------------------------------------------- tensors */

attn_status attn_weights_convert(attn_context *context, const char *path, const char *to, int64_t *tensors,
                                 attn_bytes *report)
{
    ATTN__CALL(context);
    attn_named_list list = {.context = context, .owns = true};
    attn_weights_options how = {.keep_types = true};
    attn_config *metadata = NULL;
    attn_status status = attn_config_create(&metadata, context);
    if (status == ATTN_OK)
        status = attn_weights_read(&list, path, &how, metadata, report);
    if (status == ATTN_OK && list.n == 0)
        status = attn__fail(context, ATTN_ERROR_FORMAT, "%s: the file has no tensors", path);
    if (status == ATTN_OK)
        status = attn_safetensors_write(&list, to, attn_config_size(metadata) > 0 ? metadata : NULL);
    if (tensors)
        *tensors = list.n;
    attn_config_destroy(metadata);
    attn_named_clear(&list);
    return status;
}

/* ---------------------------------------------------------------------------------------------- adapters */

/* Checks the target directory `to`. It must not contain an adapter, because loading the merged model would merge
 * that adapter too. */
static attn_status check_target(attn_context *context, const char *directory, const char *to)
{
    bool adapted = attn__adapter_is_in(to);
    char *from_here = realpath(directory, NULL), *there = realpath(to, NULL);
    bool same = from_here && there && strcmp(from_here, there) == 0;
    free(from_here);
    free(there);
    return same || adapted ? attn__fail(context, ATTN_ERROR_ARGUMENT,
                                        "%s: the directory holds a low-rank adapter; choose another directory", to)
                           : ATTN_OK;
}

attn_status attn__model_files_copy(attn_context *context, const char *directory, const char *to)
{
    static const char *const names[] = {"source.spm",   "target.spm",  "source.vocab",
                                        "target.vocab", "config.json", "low_score.json"};
    attn_status status = attn_directory_create(context, to);
    for (size_t i = 0; i < sizeof names / sizeof *names && status == ATTN_OK; i++)
        status = attn__file_copy(context, directory, names[i], to);
    return status;
}

attn_status attn_model_merge_adapter(attn_context *context, const char *directory, const char *to)
{
    ATTN__CALL(context);
    char path[ATTN__PATH];
    attn_named_list list = {.context = context, .owns = true};
    attn_weights_options how = {.keep_types = true};
    attn_status status = attn__path(context, path, to, "model.safetensors");
    if (status == ATTN_OK)
        status = check_target(context, directory, to);
    if (status == ATTN_OK)
        status = attn_weights_read(&list, directory, &how, NULL, NULL);
    if (status == ATTN_OK)
        status = attn__model_files_copy(context, directory, to);
    if (status == ATTN_OK)
        status = attn_safetensors_write(&list, path, NULL);
    attn_named_clear(&list);
    return status;
}
