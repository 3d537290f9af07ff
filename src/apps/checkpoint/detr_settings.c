/* SPDX-License-Identifier: MIT
 *
 * Reads settings of DETR's checkpoints, and detects other networks whose tensors have the same names.
 */
#include "apps/checkpoint/detr_settings.h"

#include "apps/checkpoint/plain_settings.h"
#include "attn/io.h"
#include "base/context.h"

#include <stdio.h>
#include <string.h>

/* Names of tensors. If a checkpoint has such a tensor, it belongs to another network than DETR. */
static const struct {
    const char *tensor, *what;
} others[] = {
    {"mask_head.lay1.weight", "DETR for panoptic segmentation (mask_head, bbox_attention)"},
    {"linear_class.weight", "the small DETR of its authors' notebook (conv, linear_class, query_pos)"},
};

const char *attn__detr_other(const attn_checkpoint *weights, const char **tensor)
{
    attn_checkpoint_entry entry;
    for (int64_t i = 0; attn_checkpoint_at(weights, i, &entry); i++) {
        size_t length = strlen(entry.name);
        for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
            size_t n = strlen(others[k].tensor);
            bool whole = length == n || (length > n && entry.name[length - n - 1] == '.');
            if (whole && strcmp(entry.name + length - n, others[k].tensor) == 0) {
                *tensor = others[k].tensor;
                return others[k].what;
            }
        }
    }
    return NULL;
}

attn_status attn__detr_check(attn_context *context, const attn_checkpoint *weights, const char *path)
{
    const char *tensor, *what = attn__detr_other(weights, &tensor);
    return what ? attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                             "%s: this is %s (it has the tensor %s); only DETR for object detection is supported", path,
                             what, tensor)
                : ATTN_OK;
}

/* Sets the key `to` of `config` to the value of the key `from` of `source`. Does nothing if `to` is already set, or
 * if `from` is missing or has another type. */
static attn_status take(attn_config *config, const char *to, const attn_config *source, const char *from,
                        attn_config_type type)
{
    const attn_config_value *value = attn_config_get(source, from);
    return value && value->type == type && !attn_config_get(config, to) ? attn_config_set(config, to, value) : ATTN_OK;
}

static attn_status take_arguments(attn_config *config, const attn_config *saved)
{
    attn_status status = take(config, "nheads", saved, "args.nheads", ATTN_CONFIG_TYPE_INT);
    if (status == ATTN_OK)
        status = take(config, "dilation", saved, "args.dilation", ATTN_CONFIG_TYPE_BOOL);
    return status == ATTN_OK ? take(config, "dropout", saved, "args.dropout", ATTN_CONFIG_TYPE_REAL) : status;
}

#define RESNETS                                                                                                        \
    {                                                                                                                  \
        "resnet18", "resnet34", "resnet50", "resnet101"                                                                \
    }
static const attn__plain_setting plain[] = {
    {"model_type", {"detr"}, "supported: detr"},
    {"activation_function", {"relu"}, "only relu is supported"},
    {"auxiliary_loss",
     {"false"},
     "norms after each block of the decoder, which transformers then has, are not supported"},
    {"position_embedding_type", {"sine", "learned"}, "only sine and learned positions are supported"},
    {"backbone", RESNETS, "supported: resnet18, resnet34, resnet50, resnet101"},
    {"backbone_config.backbone", RESNETS, "supported: resnet18, resnet34, resnet50, resnet101"},
    {"backbone_config.model_type", {"resnet", "timm_backbone"}, "supported: resnet, timm_backbone"},
    {"backbone_config.hidden_act", {"relu"}, "only relu is supported"},
    {"backbone_config.downsample_in_first_stage",
     {"false"},
     "only ResNets whose first stage keeps the size are supported"},
    {"backbone_config.downsample_in_bottleneck",
     {"false"},
     "only ResNets that halve the size in the 3 x 3 convolution are supported"},
    {"backbone_config.output_stride", {"32", "16"}, "supported: 32, and 16 (dilation)"},
    {"backbone_kwargs.output_stride", {"32", "16"}, "supported: 32, and 16 (dilation)"}};

static attn_status check_hugging_face(attn_context *context, const attn_config *config, const char *settings)
{
    attn_status status = attn__plain_check(context, config, settings, "", plain, sizeof plain / sizeof *plain);
    if (status != ATTN_OK)
        return status;
    int64_t encoder = attn_config_int(config, "encoder_attention_heads", 8),
            decoder = attn_config_int(config, "decoder_attention_heads", 8);
    return encoder == decoder
               ? ATTN_OK
               : attn__fail(
                     context, ATTN_ERROR_UNSUPPORTED,
                     "%s: encoder_attention_heads is %lld and decoder_attention_heads is %lld; they must be equal",
                     settings, (long long)encoder, (long long)decoder);
}

/* As in transformers, "dilation" counts for a backbone of timm only, and a backbone with settings of its own has its
 * stride among them. */
static bool is_dilated(const attn_config *given)
{
    const char *kind = attn_config_text(given, "backbone_config.model_type", "");
    if (strcmp(kind, "timm_backbone") == 0)
        return attn_config_int(given, "backbone_config.output_stride", 32) == 16;
    bool timm = !*kind && attn_config_bool(given, "use_timm_backbone", true);
    return timm && (attn_config_bool(given, "dilation", false) ||
                    attn_config_int(given, "backbone_kwargs.output_stride", 32) == 16);
}

static attn_status take_hugging_face(attn_config *made, const attn_config *given)
{
    attn_status status = attn_config_set_text(made, "architecture", "detr");
    if (status == ATTN_OK)
        status = attn_config_set_int(made, "nheads", attn_config_int(given, "encoder_attention_heads", 8));
    if (status == ATTN_OK)
        status = attn_config_set_bool(made, "dilation", is_dilated(given));
    if (status == ATTN_OK)
        status = take(made, "dropout", given, "dropout", ATTN_CONFIG_TYPE_REAL);
    for (int64_t i = 0; i < attn_config_size(given) && status == ATTN_OK; i++) {
        const char *key = attn_config_key(given, i);
        if (strncmp(key, "id2label.", strlen("id2label.")) == 0)
            status = attn_config_set(made, key, attn_config_get(given, key));
    }
    return status;
}

static attn_status exchange(attn_config **config, attn_context *context, const char *settings)
{
    attn_config *made = NULL;
    attn_status status = check_hugging_face(context, *config, settings);
    if (status == ATTN_OK)
        status = attn_config_create(&made, context);
    if (status == ATTN_OK)
        status = take_hugging_face(made, *config);
    if (status != ATTN_OK) {
        attn_config_destroy(made);
        return status;
    }
    attn_config_destroy(*config);
    *config = made;
    return ATTN_OK;
}

/* A config.json of Hugging Face may lack its model_type. */
static bool is_hugging_face(const attn_config *config)
{
    return attn_config_get(config, "model_type") || attn_config_get(config, "encoder_attention_heads") ||
           attn_config_get(config, "backbone_config.model_type");
}

attn_status attn__detr_settings(attn_config **config, attn__identity *is, const char *settings)
{
    attn_status status = attn__identify_tensors(is);
    if (status == ATTN_OK)
        status = attn__detr_check(is->context, is->tensors, is->path);
    if (status == ATTN_OK && is_hugging_face(*config))
        status = exchange(config, is->context, settings);
    return status == ATTN_OK ? take_arguments(*config, is->saved) : status;
}

/* ------------------------------------------------------------------------------------- sizes of the tensors */

/* Reports whether the settings name the ResNet that the tensors have, or give its numbers of blocks. Otherwise *key
 * becomes the setting. */
static bool backbone_agrees(const attn_config *given, const char *found, const char **key)
{
    static const struct {
        const char *name;
        int64_t blocks[4];
    } resnets[] = {{"resnet18", {2, 2, 2, 2}},
                   {"resnet34", {3, 4, 6, 3}},
                   {"resnet50", {3, 4, 6, 3}},
                   {"resnet101", {3, 4, 23, 3}}};
    *key = "backbone_config.depths";
    const attn_config_value *depths = attn_config_get(given, *key);
    for (size_t i = 0; depths && i < sizeof resnets / sizeof *resnets; i++)
        if (strcmp(found, resnets[i].name) == 0)
            return depths->type != ATTN_CONFIG_TYPE_INTS ||
                   (depths->n == 4 && memcmp(depths->integers, resnets[i].blocks, sizeof resnets[i].blocks) == 0);
    *key = attn_config_get(given, "backbone_config.backbone") ? "backbone_config.backbone" : "backbone";
    const char *name = attn_config_text(given, *key, "");
    size_t n = strcspn(name, ".");
    return n == 0 || (n == strlen(found) && strncmp(name, found, n) == 0);
}

static attn_status compare_sizes(attn_context *context, const attn_config *given, const attn_config *model,
                                 const char *settings)
{
    static const char *const same[][2] = {{"d_model", "hidden_dim"},        {"encoder_layers", "enc_layers"},
                                          {"decoder_layers", "dec_layers"}, {"encoder_ffn_dim", "dim_feedforward"},
                                          {"num_queries", "num_queries"},   {"decoder_ffn_dim", "dim_feedforward"},
                                          {"num_channels", "in_channels"}};
    const char *key;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        int64_t found = attn_config_int(model, same[i][1], -1), said = attn_config_int(given, same[i][0], found);
        if (found >= 0 && said != found)
            return attn__fail(context, ATTN_ERROR_SHAPE, "%s: \"%s\" is %lld, but the shapes of the tensors give %lld",
                              settings, same[i][0], (long long)said, (long long)found);
    }
    const char *backbone = attn_config_text(model, "backbone", "");
    if (*backbone && !backbone_agrees(given, backbone, &key))
        return attn__fail(context, ATTN_ERROR_SHAPE, "%s: \"%s\" is %s, but the tensors are those of a %s", settings,
                          key, attn_config_text(given, key, "a list of other depths"), backbone);
    char label[40];
    int64_t classes = attn_config_int(model, "num_classes", 0);
    snprintf(label, sizeof label, "id2label.%lld", (long long)classes);
    return classes > 0 && attn_config_get(given, label)
               ? attn__fail(context, ATTN_ERROR_SHAPE,
                            "%s: \"id2label\" names class %lld, but the tensors have only the classes 0 to %lld",
                            settings, (long long)classes, (long long)classes - 1)
               : ATTN_OK;
}

attn_status attn__detr_agrees(const attn_config *model, attn_context *context, const char *settings)
{
    attn_config *given = NULL;
    attn_status status = attn_config_read(&given, context, settings);
    if (status == ATTN_OK && is_hugging_face(given))
        status = compare_sizes(context, given, model, settings);
    attn_config_destroy(given);
    return status;
}
