/* SPDX-License-Identifier: MIT
 *
 * Contains the table of a detector's settings.
 */
#include "apps/detector/training.h"

#include "apps/run/run.h"
#include "base/context.h"
#include "models/resnet_parts.h"

#include <string.h>

static const attn_setting keys[] = {
    ATTN__TEXT("backbone", "resnet18", attn__resnet_names, "the convolutions before the Transformer"),
    ATTN__RUN_BEGIN(
        "a checkpoint: a detector's directory, Hugging Face's, or a .pth of DETR's authors, which then sets the "
        "sizes of the model",
        "augmentation, dropout"),
    /* data */
    ATTN__TEXT("images", "", NULL, "the folder of the pictures; default: that of the annotations"),
    ATTN__TEXT("valid_data", "", NULL, "annotations to validate on; default: those of a share of the pictures"),
    ATTN__REAL("valid", "0.1", 0, 0.9, "share of the pictures kept for validation"),
    ATTN__INT("size", "", 0, 65536,
              "pixels of a picture's short side; 0: as it is; default: as the checkpoint of --from has it, else 0"),
    ATTN__INT("longest", "", 0, 1e6, "most pixels of the long side, approximately; 0: any; default: as size"),
    ATTN__BOOL("flip", "true", "mirror every other picture left to right"),
    ATTN__BOOL("crop", "true", "resize pictures by 0.6 to 1, every other one after cutting a part out"),
    /* model */
    ATTN__INT("stages", "4", 1, ATTN__RESNET_NAMED_STAGES,
              "stages of the backbone; with 3 the cells of its feature map have half the side, for small objects"),
    ATTN__INT("width", "64", 1, 1 << 16, "channels of the backbone's first stage"),
    ATTN__TEXT("stem", "conv", attn__resnet_stems,
               "conv: a 7 x 7 convolution and pooling; small: one of 3 x 3, for pictures below 128 pixels"),
    ATTN__TEXT("norm", "batch", attn__resnet_norms, "behind the backbone's convolutions"),
    ATTN__INT("hidden", "256", 4, 65536, "channels of a token"),
    ATTN__INT("encoder_depth", "6", 1, 64, "blocks of the encoder"),
    ATTN__INT("decoder_depth", "6", 1, 64, "blocks of the decoder"),
    ATTN__INT("heads", "8", 1, 1024, "attention heads"),
    ATTN__INT("mlp", "0", 0, 1048576, "width of the feed-forward layers; 0: eight times the channels"),
    ATTN__INT("queries", "100", 1, 4096, "boxes that are predicted; at least as many as a picture has objects"),
    ATTN__REAL("dropout", "0.1", 0, 0.95, "share of activations dropped in training"),
    /* training */
    ATTN__RUN_KEYS("images", "classes", "50", "8", "adamw", "0.0001", "cosine", "200", "0.0001", "0"),
};

static const attn__preset presets[] = {{{NULL, NULL}, "clip", "0.1"}};

const attn__keys attn__detector_keys = {
    .keys = keys, .n = sizeof keys / sizeof *keys, .presets = presets, .npresets = sizeof presets / sizeof *presets};

const attn_trainer attn__detector_trainer = {
    .kind = "detect",
    .summary = "a detector of objects in pictures",
    .data =
        "COCO's annotations (JSON), a folder with annotations.json, or a folder of images/ and labels/ as YOLO has it",
    .nkeys = sizeof keys / sizeof *keys,
    .keys = keys};

/* Sets the number of blocks in each stage of the backbone, if the backbone has fewer stages than its name says. */
static attn_status set_stages(attn_config *config, const attn_config *settings)
{
    int64_t stages = attn_config_int(settings, "stages", ATTN__RESNET_NAMED_STAGES);
    int kind = attn__config_choice(settings, "backbone", attn__resnet_names);
    const attn_config_value blocks = {
        .type = ATTN_CONFIG_TYPE_INTS, .n = stages, .integers = attn__resnet_blocks[kind]};
    return stages < ATTN__RESNET_NAMED_STAGES ? attn_config_set(config, "stage_blocks", &blocks) : ATTN_OK;
}

attn_status attn__detector_new(attn_model **model, attn_context *context, const attn_config *settings, int64_t classes)
{
    static const struct {
        const char *setting, *key;
    } same[] = {{"backbone", "backbone"},
                {"width", "width"},
                {"stem", "stem"},
                {"norm", "norm"},
                {"hidden", "hidden_dim"},
                {"encoder_depth", "enc_layers"},
                {"decoder_depth", "dec_layers"},
                {"heads", "nheads"},
                {"queries", "num_queries"},
                {"dropout", "dropout"}};
    int64_t mlp = attn_config_int(settings, "mlp", 0), hidden = attn_config_int(settings, "hidden", 0), groups = 32;
    attn_config *config;
    while (attn_config_int(settings, "width", 0) % groups != 0)
        groups /= 2;
    attn_status status = attn_config_create(&config, context);
    for (size_t i = 0; i < sizeof same / sizeof *same && status == ATTN_OK; i++)
        status = attn_config_set(config, same[i].key, attn_config_get(settings, same[i].setting));
    if (status == ATTN_OK)
        status = set_stages(config, settings);
    if (status == ATTN_OK)
        status = attn_config_set_int(config, "dim_feedforward", mlp ? mlp : 8 * hidden);
    if (status == ATTN_OK)
        status = attn_config_set_int(config, "norm_groups", groups);
    if (status == ATTN_OK)
        status = attn_config_set_int(config, "num_classes", classes);
    if (status == ATTN_OK) {
        attn_model_options options = {.seed = (uint64_t)attn_config_int(settings, "seed", 1)};
        status = attn_model_create(model, context, "detr", config, &options);
    }
    attn_config_destroy(config);
    return status;
}
