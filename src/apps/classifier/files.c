/* SPDX-License-Identifier: MIT
 * Writes and loads a classifier's directory. */
#include "apps/classifier/classifier.h"

#include "apps/checkpoint/foreign_model.h"
#include "apps/checkpoint/vit_config.h"
#include "apps/checkpoint/model_directory.h"
#include "apps/checkpoint/model_config.h"
#include "base/context.h"

#include <stdio.h>
#include <string.h>

/* The settings of the training that determine how images are split. They are written to config.json. */
static const char *const kept[] = {"model", "seed", "valid", "test", "compat", NULL};

static const char *const filters[] = {
    [ATTN_IMAGE_FILTER_BILINEAR] = "bilinear", [ATTN_IMAGE_FILTER_BICUBIC] = "bicubic", NULL};

static const char *const resizes[] = {"cover", "squash", NULL};

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
    attn_config_value names = {.type = ATTN_CONFIG_TYPE_TEXTS, .n = nclasses, .texts = (const char *const *)classes};
    return status == ATTN_OK ? attn_config_set(config, "class_names", &names) : status;
}

/* Settings with their default are left out. */
static attn_status set_fitting(attn_config *config, const attn__image_fitting *fitting)
{
    attn_status status = ATTN_OK;
    if (fitting->filter != ATTN_IMAGE_FILTER_BICUBIC)
        status = attn_config_set_text(config, "interpolation", filters[fitting->filter]);
    if (status == ATTN_OK && fitting->squash)
        status = attn_config_set_text(config, "resize", resizes[1]);
    return status == ATTN_OK && fitting->side ? attn_config_set_int(config, "resize_to", fitting->side) : status;
}

attn_status attn__classifier_describe(attn_config **config, const attn_model *model, const attn_config *settings,
                                      attn_image_shape shape, const attn__pixels *pixels, char *const *classes,
                                      int64_t nclasses)
{
    attn_status status = attn__model_config_create(config, model, settings, kept);
    if (status == ATTN_OK)
        status = set_inputs(*config, shape, classes, nclasses);
    if (status == ATTN_OK)
        status = set_numbers(*config, "mean", pixels->mean, shape.channels);
    if (status == ATTN_OK)
        status = set_numbers(*config, "std", pixels->std, shape.channels);
    return status == ATTN_OK ? set_fitting(*config, &pixels->fitting) : status;
}

attn_status attn__classifier_write(const attn_model *model, const attn_config *settings, attn_image_shape shape,
                                   const attn__pixels *pixels, const attn__seen *seen, char *const *classes,
                                   int64_t nclasses, const char *directory)
{
    attn_config *config = NULL;
    attn_status status = attn__classifier_describe(&config, model, settings, shape, pixels, classes, nclasses);
    if (status == ATTN_OK)
        status = attn__seen_write(config, seen);
    if (status == ATTN_OK)
        status = attn__model_config_write(config, attn_model_context(model), directory);
    attn_config_destroy(config);
    return status;
}

/* ---------------------------------------------------------------------------------------------- loading */

/* Keys that config.json has in addition to the keys of the architecture, and their defaults. */
static const attn_setting input_keys[] = {
    {"model", ATTN_CONFIG_TYPE_TEXT, "vit", 0, 0, NULL, "the kind of model"},
    {"seed", ATTN_CONFIG_TYPE_INT, "1", 0, 9e15, NULL, "of the split"},
    {"valid", ATTN_CONFIG_TYPE_REAL, "0.05", 0, 0.9, NULL, "share for validation"},
    {"test", ATTN_CONFIG_TYPE_REAL, "0.1", 0, 0.9, NULL, "share for testing"},
    {"compat", ATTN_CONFIG_TYPE_TEXT, "none", 0, 0, NULL, "d2l: the test pictures are those for validation too"},
    {"input.width", ATTN_CONFIG_TYPE_INT, NULL, 1, 4096, NULL, "pixels"},
    {"input.height", ATTN_CONFIG_TYPE_INT, NULL, 1, 4096, NULL, "pixels"},
    {"input.channels", ATTN_CONFIG_TYPE_INT, NULL, 1, 3, NULL, "1 or 3"},
    {"class_names", ATTN_CONFIG_TYPE_TEXTS, NULL, 0, 0, NULL, "one for each class"},
    {"mean.0", ATTN_CONFIG_TYPE_REAL, NULL, 0, 1, NULL, "of the first channel"},
    {"mean.1", ATTN_CONFIG_TYPE_REAL, "0", 0, 1, NULL, "of the second channel"},
    {"mean.2", ATTN_CONFIG_TYPE_REAL, "0", 0, 1, NULL, "of the third channel"},
    {"std.0", ATTN_CONFIG_TYPE_REAL, NULL, 1e-9, 1, NULL, "of the first channel"},
    {"std.1", ATTN_CONFIG_TYPE_REAL, "1", 1e-9, 1, NULL, "of the second channel"},
    {"std.2", ATTN_CONFIG_TYPE_REAL, "1", 1e-9, 1, NULL, "of the third channel"},
    {"interpolation", ATTN_CONFIG_TYPE_TEXT, "bicubic", 0, 0, filters, "of pictures of another size"},
    {"resize", ATTN_CONFIG_TYPE_TEXT, "cover", 0, 0, resizes, "cover: in proportion; squash: each side on its own"},
    {"resize_to", ATTN_CONFIG_TYPE_INT, "0", 0, 65536, NULL,
     "pixels from which the middle is cut out; 0: as many as the input has"},
};

static attn_status read_inputs(attn_classifier *c, const char *path)
{
    static const attn__keys table = {.keys = input_keys, .n = sizeof input_keys / sizeof *input_keys};
    attn__keys_options of_file = {.name = path, .refusal = ATTN_ERROR_FORMAT, .select = true};
    attn_config *checked;
    attn_status status = attn__keys_resolve(&checked, c->context, &table, c->config, &of_file);
    if (status != ATTN_OK)
        return status;
    for (int i = 0; i < 3; i++) {
        char mean[8], std[8];
        snprintf(mean, sizeof mean, "mean.%d", i);
        snprintf(std, sizeof std, "std.%d", i);
        c->pixels.mean[i] = (float)attn_config_real(checked, mean, 0);
        c->pixels.std[i] = (float)attn_config_real(checked, std, 1);
    }
    bool bilinear = strcmp(attn_config_text(checked, "interpolation", ""), filters[ATTN_IMAGE_FILTER_BILINEAR]) == 0;
    c->pixels.fitting.filter = bilinear ? ATTN_IMAGE_FILTER_BILINEAR : ATTN_IMAGE_FILTER_BICUBIC;
    c->pixels.fitting.squash = strcmp(attn_config_text(checked, "resize", ""), resizes[1]) == 0;
    c->pixels.fitting.side = attn_config_int(checked, "resize_to", 0);
    attn__seen_read(&c->seen, c->config);
    c->shape =
        (attn_image_shape){attn_config_int(checked, "input.width", 1), attn_config_int(checked, "input.height", 1),
                           attn_config_int(checked, "input.channels", 1), 1};
    attn_config_destroy(checked);
    const attn_config_value *names = attn_config_get(c->config, "class_names");
    c->classes = names->texts;
    c->nclasses = names->n;
    int64_t side = c->pixels.fitting.side;
    if (side > 0 && (side < c->shape.width || side < c->shape.height))
        return attn__fail(c->context, ATTN_ERROR_FORMAT,
                          "%s: \"resize_to\" is %lld, less than a side of the input, %lld x %lld pixels", path,
                          (long long)side, (long long)c->shape.width, (long long)c->shape.height);
    if (c->shape.channels == 2)
        return attn__fail(c->context, ATTN_ERROR_FORMAT, "%s: the input has 2 channels; expected 1 or 3", path);
    if (c->nclasses < 1)
        return attn__fail(c->context, ATTN_ERROR_FORMAT, "%s: \"class_names\" is empty; expected at least 1 class",
                          path);
    return ATTN_OK;
}

static attn_status set_missing(attn_config *config, const char *key, int64_t value)
{
    return value < 1 || attn_config_get(config, key) ? ATTN_OK : attn_config_set_int(config, key, value);
}

static attn_status number_classes(attn_config *config, attn_context *context, int64_t n)
{
    enum { DIGITS = 24 };
    const char **names = attn__alloc(context, attn__size_mul((size_t)n, sizeof *names));
    char *text = names ? attn__alloc(context, attn__size_mul((size_t)n, DIGITS)) : NULL;
    for (int64_t i = 0; text && i < n; i++) {
        names[i] = text + i * DIGITS;
        snprintf(text + i * DIGITS, DIGITS, "%lld", (long long)i);
    }
    attn_config_value value = {.type = ATTN_CONFIG_TYPE_TEXTS, .n = n, .texts = names};
    attn_status status = text ? attn_config_set(config, "class_names", &value) : ATTN_ERROR_MEMORY;
    attn__free(context, text);
    attn__free(context, names);
    return status;
}

/* Adds defaults for settings that may be missing, as in a foreign checkpoint or in the output of attn_model_save. The
 * size of pictures is the model's own, class names are numbers, and pixels are scaled to the range -1 to 1, as in
 * attn_vit_convert. */
static attn_status complete_inputs(attn_classifier *c)
{
    static const char *const half[] = {"mean.0", "mean.1", "mean.2", "std.0", "std.1", "std.2"};
    const attn_config *own = attn_model_config(c->model);
    int64_t sides[2] = {0, 0};
    (void)attn__config_sides(own, "img_size", sides);
    int64_t channels = attn_config_int(own, "in_channels", 0);
    int64_t classes = attn_config_int(own, "num_classes", attn_config_int(own, "classes", 0));
    attn_status status = set_missing(c->config, "input.width", sides[1]);
    if (status == ATTN_OK)
        status = set_missing(c->config, "input.height", sides[0]);
    if (status == ATTN_OK)
        status = set_missing(c->config, "input.channels", channels);
    for (size_t i = 0; i < sizeof half / sizeof *half && status == ATTN_OK; i++)
        status = attn_config_get(c->config, half[i]) ? ATTN_OK : attn_config_set_real(c->config, half[i], 0.5);
    return status == ATTN_OK && classes > 0 && !attn_config_get(c->config, "class_names")
               ? number_classes(c->config, c->context, classes)
               : status;
}

/* Loads a foreign Vision Transformer of Hugging Face or timm. */
static attn_status load_vit(attn_classifier *c, const char *path)
{
    attn_status status = attn__vit_classifier(&c->model, &c->config, c->context, path, NULL, NULL);
    return status == ATTN_OK ? read_inputs(c, path) : status;
}

/* Loads a model of attn, or one that a names file describes. */
static attn_status load_described(attn_classifier *c, attn__foreign *foreign, const char *names)
{
    attn_status status = attn__foreign_describe(foreign, &(attn__foreign_wish){.names = names});
    c->config = foreign->config;
    bool bare = names || (status == ATTN_OK && !attn_config_get(c->config, "class_names"));
    if (status == ATTN_OK)
        status = attn__product_check(c->context, foreign->settings, c->config, ATTN__PRODUCT_CLASSIFIER);
    if (status == ATTN_OK && !bare)
        status = read_inputs(c, foreign->settings);
    if (status == ATTN_OK)
        status = attn__foreign_model(&c->model, c->context, foreign, NULL);
    if (status == ATTN_OK && bare)
        status = complete_inputs(c);
    if (status == ATTN_OK && bare)
        status = read_inputs(c, foreign->settings);
    foreign->config = NULL; /* is the classifier's */
    return status;
}

static attn_status load_parts(attn_classifier *c, const char *path, const char *names)
{
    attn__foreign foreign;
    attn_status status = attn__foreign_open(&foreign, c->context, path);
    const attn__identity *is = &foreign.is;
    bool foreign_vit = is->form == ATTN__FORM_HUGGING_FACE && is->product == ATTN__PRODUCT_CLASSIFIER;
    if (status == ATTN_OK && !names && (is->form == ATTN__FORM_FILE || foreign_vit))
        status = attn__identify_tensors(&foreign.is);
    else if (status == ATTN_OK && !names && is->form == ATTN__FORM_OTHER)
        status = attn__identify_weights(&foreign.is);
    if (status == ATTN_OK && is->vit)
        status = load_vit(c, path);
    else if (status == ATTN_OK && !names && is->form == ATTN__FORM_FILE)
        status = attn__fail(c->context, ATTN_ERROR_UNSUPPORTED,
                            is->product == ATTN__PRODUCT_DETECTOR
                                ? "%s: this is a DETR; attn detect uses it"
                                : "%s: the tensors do not have the names of a Vision Transformer of Hugging Face or "
                                  "timm; a classifier with other names needs --names FILE",
                            path);
    else if (status == ATTN_OK)
        status = load_described(c, &foreign, names);
    attn__foreign_end(&foreign);
    return status;
}

attn_status attn_classifier_load(attn_classifier **classifier, attn_context *context, const char *path,
                                 const char *names)
{
    ATTN__CALL(context);
    *classifier = NULL;
    attn_classifier *made = attn__alloc_zero(context, sizeof *made);
    if (!made)
        return ATTN_ERROR_MEMORY;
    made->context = context;
    attn_status status = load_parts(made, path, names);
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

attn_model *attn_classifier_model(const attn_classifier *c)
{
    return c->model;
}

attn_image_shape attn_classifier_shape(const attn_classifier *c)
{
    return c->shape;
}

int64_t attn_classifier_class_count(const attn_classifier *c)
{
    return c->nclasses;
}

const char *attn_classifier_class_name(const attn_classifier *c, int64_t i)
{
    return i >= 0 && i < c->nclasses ? c->classes[i] : NULL;
}
