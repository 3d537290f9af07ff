/* SPDX-License-Identifier: MIT */
#include "apps/checkpoint/vit_config.h"

#include "apps/checkpoint/plain_settings.h"
#include "attn/io.h"
#include "base/context.h"
#include "config/keys.h"
#include "io/file.h"
#include "io/directory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------------- reading */

/* Reads the file `name` beside the weights. If the file does not exist, *config is empty. */
static attn_status read_beside(const attn__vit_config *v, const char *name, char path[ATTN__PATH], attn_config **config)
{
    attn_status status = attn__settings_beside(config, v->context, v->is.path, name, path);
    return status == ATTN_OK && !*config ? attn_config_create(config, v->context) : status;
}

attn_status attn__vit_config_open(attn__vit_config *v, attn_context *context, const char *path)
{
    char other[ATTN__PATH];
    *v = (attn__vit_config){.context = context};
    attn_status status = attn__identify(&v->is, context, path);
    v->config = v->is.config;
    v->is.config = NULL;
    if (status == ATTN_OK)
        status = v->config ? attn__path_copy(context, v->path, v->is.settings)
                           : read_beside(v, "config.json", v->path, &v->config);
    if (status == ATTN_OK)
        status = read_beside(v, "preprocessor_config.json", other, &v->preparation);
    return status == ATTN_OK ? attn_config_create(&v->is.saved, context) : status;
}

void attn__vit_config_close(attn__vit_config *v)
{
    attn_config_destroy(v->config);
    attn_config_destroy(v->preparation);
    attn__identity_end(&v->is);
}

/* ------------------------------------------------------------------------------------------------ heads */

/* Returns the number of heads of a plain model of timm with this width. The names of such models begin with
 * vit_SIZE_ or deit_SIZE_. For other names, returns 0. */
static int64_t timm_heads(const char *name, int64_t width)
{
    static const struct {
        const char *size;
        int64_t width, heads;
    } known[] = {{"tiny_", 192, 3},   {"small_", 384, 6},   {"base_", 768, 12},     {"large_", 1024, 16},
                 {"huge_", 1280, 16}, {"giant_", 1408, 16}, {"gigantic_", 1664, 16}};
    const char *size = strncmp(name, "vit_", 4) == 0 ? name + 4 : strncmp(name, "deit_", 5) == 0 ? name + 5 : "";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strncmp(size, known[i].size, strlen(known[i].size)) == 0 && width == known[i].width)
            return known[i].heads;
    return 0;
}

static const char *saved_architecture(const attn__vit_config *v)
{
    return attn_config_text(v->is.saved, "arch", attn_config_text(v->is.saved, "args.model", ""));
}

attn_status attn__vit_heads(const attn__vit_config *v, int64_t width, int64_t *heads)
{
    /* 12 is the default of transformers' ViTConfig */
    *heads = v->hugging_face ? attn_config_int(v->config, "num_attention_heads", 12) : 0;
    if (*heads == 0)
        *heads = attn_config_int(v->config, "model_args.num_heads", 0);
    if (*heads == 0)
        *heads = attn_config_int(v->is.saved, "args.model_kwargs.num_heads", 0);
    if (*heads == 0)
        *heads = timm_heads(attn_config_text(v->config, "architecture", ""), width);
    if (*heads == 0)
        *heads = timm_heads(saved_architecture(v), width);
    return *heads > 0
               ? ATTN_OK
               : attn__fail(
                     v->context, ATTN_ERROR_ARGUMENT,
                     "%s: neither the tensors nor a config.json give the number of heads; attn convert --heads sets it. The "
                     "model has %" PRId64
                     " channels; timm's own models have 3 heads for 192 channels, 6 for 384, 12 for "
                     "768 and 16 for more",
                     v->is.path, width);
}

/* ----------------------------------------------------------------------------------------------- shapes */

/* Properties of a model that no tensor shows. In a plain ViT of timm, each has the fixed value given here. */
static const attn__plain_setting forms[] = {
    {"global_pool", {"token"}, "only classifiers of the class token are supported"},
    {"act_layer", {"gelu"}, "only gelu is supported"},
    {"norm_layer", {"layernorm"}, "only layernorm is supported"}};
enum { FORMS = sizeof forms / sizeof *forms };

/* Parts of timm's architecture names. A name with such a part belongs to another form of model, which the second
 * text describes. */
static const char *const named_forms[][2] = {{"_quickgelu", "quickgelu"}, {"_gap_", "a mean over the patches"}};

static attn_status check_architecture(const attn__vit_config *v, const char *path, const char *name)
{
    for (size_t i = 0; i < sizeof named_forms / sizeof *named_forms; i++)
        if (strstr(name, named_forms[i][0]))
            return attn__fail(
                v->context, ATTN_ERROR_UNSUPPORTED,
                "%s: the architecture \"%.80s\" has %s, which is not supported; gelu and a class token are", path, name,
                named_forms[i][1]);
    return ATTN_OK;
}

/* Checks that config.json and the training arguments both describe a plain ViT. If not, returns
 * ATTN_ERROR_UNSUPPORTED. */
static attn_status timm_is_plain(const attn__vit_config *v)
{
    static const attn__plain_setting pool = {"args.gp", {"token"}, "only classifiers of the class token are supported"};
    const char *own = attn_config_text(v->config, "architecture", ""), *trained = saved_architecture(v);
    attn_status status = attn__plain_check(v->context, v->config, v->path, "", forms, FORMS);
    if (status == ATTN_OK)
        status = attn__plain_check(v->context, v->config, v->path, "model_args.", forms, FORMS);
    if (status == ATTN_OK)
        status = attn__plain_check(v->context, v->is.saved, v->is.path, "args.model_kwargs.", forms, FORMS);
    if (status == ATTN_OK)
        status = attn__plain_check(v->context, v->is.saved, v->is.path, "", &pool, 1);
    if (status == ATTN_OK)
        status = check_architecture(v, v->path, own);
    return status == ATTN_OK ? check_architecture(v, v->is.path, trained) : status;
}

/* There may be fewer names than classes; the remaining classes then get numbers. A name for a class that does not exist
 * is an error, because config.json then belongs to another model. */
static attn_status check_labels(const attn__vit_config *v, int64_t classes)
{
    char key[40];
    snprintf(key, sizeof key, "id2label.%" PRId64, classes);
    if (classes < 1 || !attn_config_get(v->config, key))
        return ATTN_OK;
    return attn__fail(v->context, ATTN_ERROR_SHAPE,
                      "%s: \"id2label\" names class %" PRId64 ", but the tensors have only the classes 0 to %" PRId64,
                      v->path, classes, classes - 1);
}

attn_status attn__vit_agrees(const attn__vit_config *v, const attn_config *model)
{
    static const char *const same[][2] = {{"hidden_size", "num_hiddens"},
                                          {"num_hidden_layers", "num_blks"},
                                          {"intermediate_size", "mlp_num_hiddens"},
                                          {"num_channels", "in_channels"},
                                          {"patch_size", "patch_size"}};
    for (size_t i = 0; v->hugging_face && i < sizeof same / sizeof *same; i++) {
        int64_t found[2] = {0, 0}, said[2];
        char a[48], b[48];
        bool both = attn__config_sides(model, same[i][1], found) && attn__config_sides(v->config, same[i][0], said);
        if (both && (said[0] != found[0] || said[1] != found[1]))
            return attn__fail(v->context, ATTN_ERROR_SHAPE, "%s: \"%s\" is %s, but the shapes of the tensors give %s",
                              v->path, same[i][0], attn__sides_text(a, said), attn__sides_text(b, found));
    }
    if (!v->hugging_face)
        return timm_is_plain(v);
    /* transformers leaves out biases that the tensors have, if the setting is false */
    static const attn__plain_setting biases = {"qkv_bias", {"true"}, "only models with these biases are supported"};
    attn_status status = attn__plain_check(v->context, v->config, v->path, "", &biases, 1);
    return status == ATTN_OK ? check_labels(v, attn_config_int(model, "num_classes", 0)) : status;
}

/* Returns the key of the setting that holds height and width. *first becomes the index of the height in this
 * setting. */
static const char *sides_key(const attn__vit_config *v, int *first)
{
    const char *key = v->hugging_face ? "image_size" : "model_args.img_size";
    bool timm = !v->hugging_face && !attn_config_get(v->config, key);
    *first = timm ? 1 : 0; /* in timm's list, the number of channels comes before the height */
    return timm ? "pretrained_cfg.input_size" : key;
}

bool attn__vit_sides(const attn__vit_config *v, int64_t sides[2])
{
    int first;
    const char *key = sides_key(v, &first);
    for (int i = 0; i < 2; i++) {
        double side = attn__config_number_at(v->config, key, first + i, 0);
        if (!(side >= 1 && side <= 65536))
            return false;
        sides[i] = (int64_t)side;
    }
    return true;
}

attn_status attn__vit_picture(const attn__vit_config *v, int64_t grid, int64_t side, int64_t *size)
{
    int first;
    const char *key = sides_key(v, &first);
    double own = (double)(grid * side), height = attn__config_number_at(v->config, key, first, own),
           width = attn__config_number_at(v->config, key, first + 1, own);
    bool whole = height >= 1 && height <= 65536 && (int64_t)height % side == 0;
    *size = whole ? (int64_t)height : 0;
    if (!whole || height < width || height > width || (v->hugging_face && *size != grid * side))
        return attn__fail(v->context, ATTN_ERROR_SHAPE,
                          "%s: \"%s\" gives pictures of %g x %g pixels, but the tensors have positions for %" PRId64
                          " x %" PRId64 " patches of %" PRId64 " pixels; expected square pictures of %" PRId64,
                          v->path, key, height, width, grid, grid, side, grid * side);
    return ATTN_OK;
}

/* ----------------------------------------------------------------------------------------------- pixels */

static attn_status check_pixels(const attn__vit_config *v, const attn__pixels *pixels)
{
    for (int i = 0; i < 3; i++) {
        if (!(pixels->mean[i] >= 0 && pixels->mean[i] <= 1))
            return attn__fail(
                v->context, ATTN_ERROR_UNSUPPORTED,
                "%s: the mean that is subtracted from pixels is %g; it must be 0 to 1; attn convert --mean sets it",
                v->is.path, (double)pixels->mean[i]);
        if (!(pixels->std[i] >= 1e-6f && pixels->std[i] <= 1))
            return attn__fail(
                v->context, ATTN_ERROR_UNSUPPORTED,
                "%s: the standard deviation by which pixels are divided is %g; it must be 1e-06 to 1; attn convert "
                "--std sets it",
                v->is.path, (double)pixels->std[i]);
    }
    return ATTN_OK;
}

static const char *filter_of(const attn__vit_config *v)
{
    if (!v->hugging_face || attn_config_size(v->preparation) == 0)
        return attn_config_text(v->config, "pretrained_cfg.interpolation", "bicubic");
    return attn__preparation_filter(v->preparation, "bilinear");
}

/* Returns a length from a setting that is a number, a list (element i), or an object (member `name`). */
static int64_t length_of(const attn_config *p, const char *key, const char *name, int i)
{
    char inside[64];
    snprintf(inside, sizeof inside, "%s.%s", key, name);
    double found = attn__config_number_at(p, key, i, (double)attn_config_int(p, inside, 0));
    return found >= 0 && found <= 65536 ? (int64_t)found : -1;
}

static attn_status refuse_fitting(const attn__vit_config *v, const char *what)
{
    return attn__fail(v->context, ATTN_ERROR_UNSUPPORTED, "%s: preprocessor_config.json %s, which is not supported",
                      v->is.path, what);
}

/* Reads from preprocessor_config.json how pictures are resized and cropped, for a model with pictures of this size.
 * An integer "size" is the length of both sides; for CLIP's processor it is the length of the shorter side. */
static attn_status read_fitting(const attn__vit_config *v, const int64_t sides[2], attn__image_fitting *f)
{
    const attn_config *p = v->preparation;
    const char *kind = attn_config_text(p, "image_processor_type", attn_config_text(p, "feature_extractor_type", ""));
    bool clip = strncmp(kind, "CLIP", 4) == 0, deit = strncmp(kind, "DeiT", 4) == 0;
    bool cut = attn_config_bool(p, "do_center_crop", clip || deit);
    int64_t shortest = length_of(p, "size", "shortest_edge", 0);
    bool in_proportion = (clip && !attn_config_get(p, "size.height")) || attn_config_get(p, "size.shortest_edge");
    int64_t height = in_proportion ? shortest : length_of(p, "size", "height", 0);
    int64_t width = in_proportion ? shortest : length_of(p, "size", "width", 1);
    int64_t cut_height = length_of(p, "crop_size", "height", 0), cut_width = length_of(p, "crop_size", "width", 1);
    if (!attn_config_bool(p, "do_resize", true))
        return cut ? refuse_fitting(v, "has \"do_center_crop\" without \"do_resize\"") : ATTN_OK;
    if (attn_config_real(p, "crop_pct", 0) > 0)
        return refuse_fitting(v, "has \"crop_pct\"");
    if (attn_config_real(p, "size.longest_edge", 0) > 0)
        return refuse_fitting(v, "has \"longest_edge\"");
    if (attn_config_bool(p, "do_pad", false))
        return refuse_fitting(v, "has \"do_pad\"");
    f->squash = !in_proportion;
    height = height ? height : sides[0];
    width = width ? width : sides[1];
    cut_height = cut && cut_height ? cut_height : cut ? sides[0] : height;
    cut_width = cut && cut_width ? cut_width : cut ? sides[1] : width;
    char what[160];
    snprintf(what, sizeof what,
             "resizes to %" PRId64 " x %" PRId64 " and cuts out %" PRId64 " x %" PRId64 " for a model of %" PRId64
             " x %" PRId64,
             height, width, cut_height, cut_width, sides[0], sides[1]);
    bool whole = height == sides[0] && width == sides[1], covers = height >= sides[0] && height >= sides[1];
    if (!(whole || (height == width && covers)) || cut_height != sides[0] || cut_width != sides[1])
        return refuse_fitting(v, what);
    f->side = whole ? 0 : height;
    return ATTN_OK;
}

attn_status attn__vit_pixels(const attn__vit_config *v, const int64_t sides[2], const attn_pixel_scale *scale,
                             attn__pixels *pixels)
{
    const char *filter = filter_of(v);
    bool prepared = v->hugging_face && attn_config_size(v->preparation) > 0;
    pixels->fitting = (attn__image_fitting){0};
    for (int i = 0; i < 3; i++) {
        pixels->mean[i] = (float)attn__config_number_at(v->config, "pretrained_cfg.mean", i, 0.5);
        pixels->std[i] = (float)attn__config_number_at(v->config, "pretrained_cfg.std", i, 0.5);
    }
    if (prepared) {
        for (int i = 0; i < 3; i++)
            pixels->mean[i] = pixels->std[i] = 0.5F; /* the defaults of ViTImageProcessor */
        attn__preparation_read(v->preparation, pixels->mean, pixels->std);
    }
    for (int i = 0; scale && i < 3; i++) {
        pixels->mean[i] = scale->mean[i];
        pixels->std[i] = scale->std[i];
    }
    pixels->fitting.filter = strcmp(filter, "bilinear") == 0 ? ATTN_IMAGE_FILTER_BILINEAR : ATTN_IMAGE_FILTER_BICUBIC;
    if (strcmp(filter, "bilinear") != 0 && strcmp(filter, "bicubic") != 0)
        return attn__fail(
            v->context, ATTN_ERROR_UNSUPPORTED,
            "%s: the model's pictures are resized by %.40s interpolation; only bilinear and bicubic are supported",
            v->is.path, filter);
    attn_status status = prepared ? read_fitting(v, sides, &pixels->fitting) : ATTN_OK;
    return status == ATTN_OK ? check_pixels(v, pixels) : status;
}
