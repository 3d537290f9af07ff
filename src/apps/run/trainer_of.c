/* SPDX-License-Identifier: MIT
 * Finds out what a model at a path is for: its kind of training. */
#include "attn/trainer.h"

#include "apps/checkpoint/marian.h"
#include "apps/checkpoint/model_config.h"
#include "apps/classifier/classifier.h"
#include "apps/detector/detector.h"
#include "apps/generator/generator.h"
#include "apps/msa/msa.h"
#include "base/context.h"
#include "io/file.h"
#include "io/names/names.h"

#include <string.h>

static const char *of_architecture(const char *name)
{
    const attn_architecture *a = attn_architecture_find(name);
    return strcmp(name, "msa-transformer") == 0     ? "msa"
           : strcmp(name, "detr") == 0              ? "detect"
           : strcmp(name, "axial-transformer") == 0 ? "images"
           : a && a->seq2seq                        ? "translate"
                                                    : "classify";
}

static bool translates(attn_context *context, const char *path)
{
    attn_config *config = attn__model_config_try(context, path);
    const attn_architecture *a = config ? attn_architecture_find(attn_config_text(config, "architecture", "")) : NULL;
    bool is = config ? attn__marian_is(config) || (a && a->seq2seq) : attn__archive_is(context, path);
    attn_config_destroy(config);
    return is;
}

static const char *of_path(attn_context *context, const char *path)
{
    return attn_msa_is_at(context, path)          ? "msa"
           : attn__detector_is_at(context, path)  ? "detect"
           : attn_classifier_is_at(context, path) ? "classify"
           : attn_generator_is_at(context, path)  ? "images"
           : translates(context, path)            ? "translate"
                                                  : NULL;
}

attn_status attn_trainer_of(const attn_trainer **trainer, attn_context *context, const char *path, const char *names)
{
    ATTN__CALL(context);
    attn_name_map *map = NULL;
    *trainer = NULL;
    attn_status status = names ? attn_name_map_read(&map, context, names) : ATTN_OK;
    const char *architecture = map ? attn_name_map_architecture(map) : NULL;
    if (status == ATTN_OK && architecture)
        *trainer = attn_trainer_find(of_architecture(architecture));
    else if (status == ATTN_OK && !attn__is_directory(path) && !attn_file_exists(path))
        status = attn__fail(context, ATTN_ERROR_NOT_FOUND, "%s: there is no such file or directory", path);
    else if (status == ATTN_OK)
        *trainer = attn_trainer_find(of_path(context, path));
    attn_name_map_destroy(map);
    return status == ATTN_OK ? attn__call_status(context) : status;
}
