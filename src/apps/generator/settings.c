/* SPDX-License-Identifier: MIT
 *
 * Contains the table of a generator's settings, and makes the model from these settings.
 */
#include "apps/generator/generator.h"

#include "apps/run/run.h"
#include "base/context.h"

static const char *const models[] = {"axial-transformer", NULL};
static const char *const compats[] = {"none", "paper", NULL};

static const attn_setting keys[] = {
    ATTN__TEXT("model", "axial-transformer", models, "the distribution over images (Ho et al. 2019)"),
    ATTN__TEXT("compat", "none", compats,
               "paper: as many blocks as the axial transformer of Ho et al. 2019 has: 16, 8 and 4 of one axis"),
    ATTN__RUN_BEGIN("a model: a directory of attn's, which then sets the sizes of the model", "augmentation, dropout"),
    /* data */
    ATTN__BOOL("video", "false", "folders are videos, their pictures the frames, in the order of their names"),
    ATTN__RUN_IMAGES(1024, "false", "0"),
    ATTN__INT("levels", "256", 2, 256, "number of values that a sample can have; it is rounded down to one of them"),
    /* model */
    ATTN__INT("dim", "64", 1, 65536, "channels of the model"),
    ATTN__INT("heads", "4", 1, 1024, "attention heads; divides dim"),
    ATTN__INT("exterior_blocks", "2", 0, 64,
              "blocks that attend to earlier channels and frames; grey pictures need none"),
    ATTN__INT("outer_blocks", "4", 0, 64, "blocks that attend to the rows above, along rows and columns in turn"),
    ATTN__INT("inner_blocks", "4", 0, 64, "blocks that attend to the pixels to the left"),
    ATTN__REAL("dropout", "0", 0, 0.95, "share of activations dropped in training"),
    /* These are settings of the training. Labels are not smoothed, because the loss counts bits. Smoothed labels
     * would give the bits of another distribution. */
    ATTN__RUN_KEYS("images", "levels", "20", "32", "adam", "0.001", "cosine", "200", "0", "0"),
    ATTN__REAL("ema", "0.9995", 0, 0.9999999,
               "decay of the moving average of the weights, which is what is validated and kept; 0: none"),
};

/* In the paper, a block of the encoder or of the outer decoder is a pair of a row block and a column block. The
 * encoder has 8 such pairs, and the outer decoder has 4. The inner decoder has 4 row blocks. */
static const attn__preset presets[] = {
    {{"paper", NULL}, "exterior_blocks", "16"},
    {{"paper", NULL}, "outer_blocks", "8"},
    {{"paper", NULL}, "inner_blocks", "4"},
};

const attn__keys attn__generator_keys = {.keys = keys,
                                         .n = sizeof keys / sizeof *keys,
                                         .selectors = {"compat", NULL},
                                         .presets = presets,
                                         .npresets = sizeof presets / sizeof *presets};

const attn_trainer attn__generator_trainer = {
    .kind = "images",
    .summary = "a model that draws images",
    .data =
        "a folder of images: IDX files, CIFAR-10's records, or PNG, JPEG, WebP, BMP and PNM files; videos: folders of "
        "those, or a .npy",
    .nkeys = sizeof keys / sizeof *keys,
    .keys = keys};

static attn_status fill(attn_config *config, const attn_config *settings, attn_image_shape shape)
{
    static const char *const same[] = {"levels",       "dim",          "heads",  "exterior_blocks",
                                       "outer_blocks", "inner_blocks", "dropout"};
    attn_status status = attn_config_set_int(config, "height", shape.height);
    if (status == ATTN_OK)
        status = attn_config_set_int(config, "width", shape.width);
    if (status == ATTN_OK)
        status = attn_config_set_int(config, "channels", shape.channels);
    if (status == ATTN_OK)
        status = attn_config_set_int(config, "frames", shape.frames);
    for (size_t i = 0; status == ATTN_OK && i < sizeof same / sizeof *same; i++)
        status = attn_config_set(config, same[i], attn_config_get(settings, same[i]));
    return status;
}

attn_status attn__generator_model(attn_model **model, attn_context *context, const attn_config *settings,
                                  attn_image_shape shape)
{
    attn_model_options options = {.seed = (uint64_t)attn_config_int(settings, "seed", 1)};
    attn_config *config;
    *model = NULL;
    attn_status status = attn_config_create(&config, context);
    if (status == ATTN_OK)
        status = fill(config, settings, shape);
    if (status == ATTN_OK)
        status = attn_model_create(model, context, "axial-transformer", config, &options);
    attn_config_destroy(config);
    return status;
}
