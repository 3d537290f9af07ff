/* SPDX-License-Identifier: MIT
 * A classifier's directory: writing it, and loading it back. */
#include "apps/classifier.h"

#include "apps/model_directory.h"
#include "apps/model_config.h"
#include "base/context.h"

#include <stdio.h>
#include <string.h>

/* Settings of the training that say ever after how images were divided. */
static const char *const kept[] = {"model", "seed", "valid", "test", NULL};

/* ---------------------------------------------------------------------------------------------- writing */

static attn_status set_numbers(attn_config *config, const char *name, const float *values, int64_t n)
{
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < n && status == ATTN_OK; i++) {
        char key[32];
        snprintf(key, sizeof key, "%s.%lld", name, (long long)i);
        status = attn_config_set_real(config, key, (double)values[i]);
    }
    return status;
}

static attn_status set_inputs(attn_config *config, attn_image_shape shape, char *const *classes, int64_t nclasses)
{
    attn_status status = attn_config_set_int(config, "input.width", shape.width);
    if (status == ATTN_OK)
        status = attn_config_set_int(config, "input.height", shape.height);
    if (status == ATTN_OK)
        status = attn_config_set_int(config, "input.channels", shape.channels);
    attn_value names = {.type = ATTN_VALUE_TEXTS, .n = nclasses, .texts = (const char *const *)classes};
    return status == ATTN_OK ? attn_config_set(config, "class_names", &names) : status;
}

attn_status attn__classifier_write(const attn_model *model, const attn_config *settings, attn_image_shape shape,
                                   const float *mean, const float *std, const attn__seen *seen, char *const *classes,
                                   int64_t nclasses, const char *directory)
{
    attn_context *context = attn_model_context(model);
    attn_config *config = NULL;
    attn_status status = attn__model_config_create(&config, model, settings, kept);
    if (status == ATTN_OK)
        status = set_inputs(config, shape, classes, nclasses);
    if (status == ATTN_OK)
        status = set_numbers(config, "mean", mean, shape.channels);
    if (status == ATTN_OK)
        status = set_numbers(config, "std", std, shape.channels);
    if (status == ATTN_OK)
        status = attn__seen_write(config, seen);
    if (status == ATTN_OK)
        status = attn__model_config_write(config, context, directory);
    attn_config_destroy(config);
    return status;
}

/* ---------------------------------------------------------------------------------------------- loading */

/* What config.json must hold beside the architecture's keys. */
static const attn_key input_keys[] = {
    {"model", ATTN_VALUE_TEXT, "vit", 0, 0, NULL, "the kind of model"},
    {"seed", ATTN_VALUE_INT, "1", 0, 9e15, NULL, "of the split"},
    {"valid", ATTN_VALUE_REAL, "0.05", 0, 0.9, NULL, "share for validation"},
    {"test", ATTN_VALUE_REAL, "0.1", 0, 0.9, NULL, "share for testing"},
    {"input.width", ATTN_VALUE_INT, NULL, 1, 4096, NULL, "pixels"},
    {"input.height", ATTN_VALUE_INT, NULL, 1, 4096, NULL, "pixels"},
    {"input.channels", ATTN_VALUE_INT, NULL, 1, 3, NULL, "1 or 3"},
    {"class_names", ATTN_VALUE_TEXTS, NULL, 0, 0, NULL, "one for each class"},
    {"mean.0", ATTN_VALUE_REAL, NULL, 0, 1, NULL, "of the first channel"},
    {"mean.1", ATTN_VALUE_REAL, "0", 0, 1, NULL, "of the second channel"},
    {"mean.2", ATTN_VALUE_REAL, "0", 0, 1, NULL, "of the third channel"},
    {"std.0", ATTN_VALUE_REAL, NULL, 1e-9, 1, NULL, "of the first channel"},
    {"std.1", ATTN_VALUE_REAL, "1", 1e-9, 1, NULL, "of the second channel"},
    {"std.2", ATTN_VALUE_REAL, "1", 1e-9, 1, NULL, "of the third channel"},
};

/* A directory of another kind is said to be that, not to lack keys. */
static attn_status check_kind(const attn_classifier *c, const char *path)
{
    static const struct {
        const char *architecture, *what;
    } others[] = {{"axial-transformer", "draws images: attn generate and attn complete use it"},
                  {"msa-transformer", "reads alignments: attn contacts, embed and score use it"},
                  {"transformer", "translates: attn translate uses it"},
                  {"seq2seq-attention", "translates: attn translate uses it"}};
    const char *name = attn_config_text(c->config, "architecture", "");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strcmp(name, others[i].architecture) == 0)
            return attn__fail(c->context, ATTN_UNSUPPORTED, "%s: \"%s\" is no classifier; it %s", path, name,
                              others[i].what);
    }
    return ATTN_OK;
}

static attn_status read_inputs(attn_classifier *c, const char *path)
{
    static const attn__keys table = {.keys = input_keys, .n = sizeof input_keys / sizeof *input_keys};
    attn__keys_options of_file = {.name = path, .refusal = ATTN_FORMAT, .select = true};
    attn_config *checked;
    attn_status status = attn__keys_resolve(&checked, c->context, &table, c->config, &of_file);
    if (status != ATTN_OK)
        return status;
    for (int i = 0; i < 3; i++) {
        char mean[8], std[8];
        snprintf(mean, sizeof mean, "mean.%d", i);
        snprintf(std, sizeof std, "std.%d", i);
        c->mean[i] = (float)attn_config_real(checked, mean, 0);
        c->std[i] = (float)attn_config_real(checked, std, 1);
    }
    attn__seen_read(&c->seen, c->config);
    c->shape =
        (attn_image_shape){attn_config_int(checked, "input.width", 1), attn_config_int(checked, "input.height", 1),
                           attn_config_int(checked, "input.channels", 1)};
    attn_config_destroy(checked);
    const attn_value *names = attn_config_get(c->config, "class_names");
    c->classes = names->texts;
    c->nclasses = names->n;
    if (c->shape.channels == 2 || c->nclasses < 1)
        return attn__fail(c->context, ATTN_FORMAT, "%s: %lld channels and %lld classes", path,
                          (long long)c->shape.channels, (long long)c->nclasses);
    return ATTN_OK;
}

/* The architecture with the settings that config.json has for it. */
static attn_status make_model(attn_classifier *c, const char *path, const char *weights)
{
    const char *name = attn_config_text(c->config, "architecture", "");
    const attn_architecture *architecture = attn_architecture_find(name);
    if (!architecture)
        return attn__fail(c->context, ATTN_FORMAT, "%s: there is no architecture \"%.80s\"", path, name);
    return attn__model_of_config(&c->model, c->context, architecture, c->config, weights);
}

static attn_status load_parts(attn_classifier *c, const char *directory)
{
    char config[ATTN__PATH], weights[ATTN__PATH];
    attn_status status = attn__path(c->context, config, directory, "config.json");
    if (status == ATTN_OK)
        status = attn__model_weights_path(c->context, weights, directory);
    if (status == ATTN_OK)
        status = attn_config_read(&c->config, c->context, config);
    if (status == ATTN_OK)
        status = check_kind(c, config);
    if (status == ATTN_OK)
        status = read_inputs(c, config);
    if (status == ATTN_OK)
        status = make_model(c, config, weights);
    return status == ATTN_OK ? attn_weights_load(attn_model_parameters(c->model), weights, NULL, NULL, NULL) : status;
}

attn_status attn_classifier_load(attn_classifier **classifier, attn_context *context, const char *directory)
{
    *classifier = NULL;
    attn_classifier *made = attn__alloc_zero(context, sizeof *made);
    if (!made)
        return ATTN_MEMORY;
    made->context = context;
    attn_status status = load_parts(made, directory);
    if (status != ATTN_OK) {
        attn_classifier_destroy(made);
        return status;
    }
    *classifier = made;
    return ATTN_OK;
}

void attn_classifier_destroy(attn_classifier *c)
{
    if (!c)
        return;
    attn_model_destroy(c->model);
    attn_config_destroy(c->config);
    attn__free(c->context, c);
}

bool attn_classifier_is_one(attn_context *context, const char *directory)
{
    attn_config *config = attn__model_config_try(context, directory);
    bool is = config && attn_config_get(config, "class_names");
    attn_config_destroy(config);
    return is;
}

attn_model *attn_classifier_model(const attn_classifier *c)
{
    return c->model;
}

attn_image_shape attn_classifier_shape(const attn_classifier *c)
{
    return c->shape;
}

int64_t attn_classifier_classes(const attn_classifier *c)
{
    return c->nclasses;
}

const char *attn_classifier_class(const attn_classifier *c, int64_t i)
{
    return c->classes[i];
}
