/* SPDX-License-Identifier: MIT
 *
 * Contains the table of a classifier's settings, and makes the model from these settings.
 */
#include "apps/classifier/classifier.h"

#include "apps/run/run.h"
#include "base/context.h"

#include <string.h>

static const char *const models[] = {"vit", "sasa", "nonlocal", "axial", "axial-image", NULL};
static const char *const compats[] = {"none", "d2l", NULL};

static const attn_setting keys[] = {
    ATTN__TEXT(
        "model", "vit", models,
        "vit: Vision Transformer; sasa: a residual network of local attention windows; nonlocal: convolutions with "
        "non-local blocks; axial: attention along rows and columns; axial-image: the same with convolutions, "
        "reversible"),
    ATTN__TEXT("compat", "none", compats,
               "d2l: the choices of Dive into Deep Learning for its Vision Transformer (see docs/images.md)"),
    ATTN__RUN_BEGIN(
        "a checkpoint: a classifier's directory, or a Vision Transformer of timm or Hugging Face, which then sets "
        "the kind and sizes of the model",
        "augmentation, dropout"),
    /* data */
    ATTN__RUN_IMAGES(4096, "true", "2"),
    /* model */
    ATTN__INTS("patch", "4", 1, 64, "pixels along a side of a patch, or height and width (vit, axial, axial-image)"),
    ATTN__INT("width", "96", 1, 65536, "channels of a token (vit, axial, axial-image) or of the first stage (sasa)"),
    ATTN__INT("depth", "6", 1, 64, "blocks (vit, axial, axial-image) or layers (sasa: 26, 38 or 50)"),
    ATTN__BOOL(
        "reversible", "true",
        "train in memory that does not grow with depth; computes another function than the plain stack (axial-image)"),
    ATTN__INT("heads", "0", 0, 1024, "attention heads (all but nonlocal); 0: 4, or those of the checkpoint of --from"),
    ATTN__INT("window", "7", 1, 63, "pixels along a side of a window, odd (sasa)"),
    ATTN__INT("mlp", "0", 0, 1048576, "width of the feed-forward layers (vit, axial); 0: twice the model's"),
    ATTN__REAL("dropout", "0", 0, 0.95, "share of activations dropped in training"),
    /* training */
    ATTN__RUN_KEYS("images", "classes", "15", "128", "adamw", "0.001", "cosine", "200", "0.05", "0.1"),
};

/* Defaults for pictures of 28 x 28 pixels on a small machine; docs/images.md has the results. The model sasa needs
 * about twelve times as much time per picture as the other models, mostly for its first two blocks, which run at
 * full resolution. Therefore sasa has few epochs, and small batches so that there are still enough steps. With few
 * epochs, large shifts of the pictures harm small models more than they help. Therefore axial and sasa shift
 * pictures by only one pixel. */
static const attn__preset presets[] = {
    {{"sasa", NULL}, "width", "16"},          {{"sasa", NULL}, "depth", "26"},
    {{"sasa", NULL}, "rate", "0.002"},        {{"sasa", NULL}, "epochs", "3"},
    {{"sasa", NULL}, "batch", "64"},          {{"sasa", NULL}, "shift", "1"},
    {{"nonlocal", NULL}, "dropout", "0.5"},   {{"nonlocal", NULL}, "epochs", "8"},
    {{"axial", NULL}, "width", "64"},         {{"axial", NULL}, "depth", "4"},
    {{"axial", NULL}, "shift", "1"},          {{"axial-image", NULL}, "width", "32"},
    {{"axial-image", NULL}, "depth", "4"},    {{"axial-image", NULL}, "shift", "1"},
    {{"vit", "d2l"}, "size", "96"},           {{"vit", "d2l"}, "patch", "16"},
    {{"vit", "d2l"}, "width", "512"},         {{"vit", "d2l"}, "mlp", "2048"},
    {{"vit", "d2l"}, "heads", "8"},           {{"vit", "d2l"}, "depth", "2"},
    {{"vit", "d2l"}, "dropout", "0.1"},       {{"vit", "d2l"}, "optimizer", "sgd"},
    {{"vit", "d2l"}, "momentum", "0"},        {{"vit", "d2l"}, "rate", "0.1"},
    {{"vit", "d2l"}, "schedule", "constant"}, {{"vit", "d2l"}, "warmup", "0"},
    {{"vit", "d2l"}, "weight_decay", "0"},    {{"vit", "d2l"}, "clip", "0"},
    {{"vit", "d2l"}, "label_smoothing", "0"}, {{"vit", "d2l"}, "epochs", "10"},
    {{"vit", "d2l"}, "batch", "128"},         {{"vit", "d2l"}, "keep", "last"},
    {{"vit", "d2l"}, "flip", "false"},        {{"vit", "d2l"}, "shift", "0"},
    {{"vit", "d2l"}, "valid", "0"},
};

static const attn__key_need needs[] = {{"patch", "model", {"vit", "axial", "axial-image"}},
                                       {"reversible", "model", {"axial-image"}},
                                       {"window", "model", {"sasa"}},
                                       {"mlp", "model", {"vit", "axial"}}};

const attn__keys attn__classifier_keys = {.keys = keys,
                                          .n = sizeof keys / sizeof *keys,
                                          .selectors = {"model", "compat"},
                                          .presets = presets,
                                          .npresets = sizeof presets / sizeof *presets,
                                          .needs = needs,
                                          .nneeds = sizeof needs / sizeof *needs};

const attn_trainer attn__classifier_trainer = {
    .kind = "classify",
    .summary = "a classifier of images",
    .data = "a folder of labelled images: IDX files, CIFAR-10's records, or folders of images, one a class",
    .nkeys = sizeof keys / sizeof *keys,
    .keys = keys};

/* ----------------------------------------------------------------------------------------------- models */

/* The keys of architectures that each setting sets. If an architecture does not have a key, that key is not set. */
static const struct name {
    const char *setting, *key;
} names[] = {
    {"patch", "patch_size"},      {"width", "num_hiddens"},   {"width", "dim"},       {"width", "width"},
    {"reversible", "reversible"}, {"depth", "num_blks"},      {"depth", "depth"},     {"window", "kernel_size"},
    {"dropout", "emb_dropout"},   {"dropout", "blk_dropout"}, {"dropout", "dropout"},
};

static const attn_setting *key_of(const attn_architecture *a, const char *name)
{
    for (int i = 0; i < a->nkeys; i++)
        if (strcmp(a->keys[i].name, name) == 0)
            return &a->keys[i];
    return NULL;
}

static attn_status set_if_known(attn_config *config, const attn_architecture *a, const char *name, int64_t value)
{
    return key_of(a, name) ? attn_config_set_int(config, name, value) : ATTN_OK;
}

bool attn__classifier_is_d2l(const attn_config *settings)
{
    return strcmp(attn_config_text(settings, "compat", "none"), "d2l") == 0;
}

/* Sets the key img_size. An architecture without this key accepts images of any size, so nothing is set. */
static attn_status set_image_size(attn_config *config, attn_context *context, const attn_architecture *a,
                                  attn_image_shape shape)
{
    const attn_setting *key = key_of(a, "img_size");
    if (key && key->type == ATTN_CONFIG_TYPE_INT && shape.width != shape.height)
        return attn__fail(
            context, ATTN_ERROR_UNSUPPORTED,
            "images of %lld x %lld pixels are not square, but %s needs square images; --size resizes them",
            (long long)shape.width, (long long)shape.height, a->name);
    return key ? attn__config_set_sides(config, key->name, (int64_t[]){shape.height, shape.width}) : ATTN_OK;
}

static attn_status fill(attn_config *config, const attn_architecture *a, const attn_config *settings,
                        attn_image_shape shape, int64_t classes)
{
    attn_status status = ATTN_OK;
    for (size_t i = 0; status == ATTN_OK && i < sizeof names / sizeof *names; i++) {
        const attn_config_value *value = attn_config_get(settings, names[i].setting);
        if (value && key_of(a, names[i].key))
            status = attn_config_set(config, names[i].key, value);
    }
    /* D2L compatibility uses PyTorch's initial weights, as Dive into Deep Learning does */
    if (status == ATTN_OK && attn__classifier_is_d2l(settings))
        status = attn_config_set_text(config, "init", "torch");
    int64_t heads = attn_config_int(settings, "heads", 0);
    /* Small pictures use another stem. The usual stem halves both sides twice, which would leave too few positions. */
    if (status == ATTN_OK && key_of(a, "stem") && shape.height <= 64)
        status = attn_config_set_text(config, "stem", "small");
    int64_t mlp = attn_config_int(settings, "mlp", 0), width = attn_config_int(settings, "width", 0);
    const struct number {
        const char *key;
        int64_t value;
    } numbers[] = {{"num_heads", heads ? heads : 4},
                   {"heads", heads ? heads : 4},
                   {"mlp_num_hiddens", mlp ? mlp : 2 * width},
                   {"num_classes", classes},
                   {"in_channels", shape.channels}};
    for (size_t i = 0; status == ATTN_OK && i < sizeof numbers / sizeof *numbers; i++)
        status = set_if_known(config, a, numbers[i].key, numbers[i].value);
    return status;
}

static const char *architecture_of(const char *model)
{
    static const char *const architectures[] = {"vit", "sasa-resnet", "non-local-net", "axial-classifier",
                                                "axial-image-classifier"};
    size_t i = 0;
    while (models[i + 1] && strcmp(models[i], model) != 0)
        i++;
    return architectures[i];
}

attn_status attn__classifier_model(attn_model **model, attn_context *context, const attn_config *settings,
                                   attn_image_shape shape, int64_t classes)
{
    const char *name = architecture_of(attn_config_text(settings, "model", "vit"));
    const attn_architecture *architecture = attn_architecture_find(name);
    attn_model_options options = {.seed = (uint64_t)attn_config_int(settings, "seed", 1)};
    attn_config *config;
    *model = NULL;
    if (!architecture)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED, "there is no architecture \"%s\"", name);
    attn_status status = attn_config_create(&config, context);
    if (status == ATTN_OK)
        status = set_image_size(config, context, architecture, shape);
    if (status == ATTN_OK)
        status = fill(config, architecture, settings, shape, classes);
    if (status == ATTN_OK)
        status = attn_model_create(model, context, name, config, &options);
    attn_config_destroy(config);
    return status;
}
