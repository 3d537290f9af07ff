/* SPDX-License-Identifier: MIT
 * Checkpoints of Vision Transformers from elsewhere: settings from shapes and config.json, parameters by the table. */
#include "attn/vit.h"

#include "apps/vit_names.h"
#include "attn/io.h"
#include "base/context.h"
#include "io/file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PATH = 4096 };

typedef struct checkpoint {
    attn_context *context;
    const char *path;
    char config[PATH];
    attn_named_list tensors;
    attn_config *settings; /* of config.json; empty for timm */
    attn__vit_family family;
    int64_t grid; /* patches along a side */
    bool has_head;
} checkpoint;

/* ---------------------------------------------------------------------------------------------- finding */

/* config.json stands in the directory, or beside the file. */
static attn_status find_config(checkpoint *c)
{
    const char *slash = strrchr(c->path, '/');
    int length = attn__is_directory(c->path) ? (int)strlen(c->path) : slash ? (int)(slash - c->path) : 0;
    if (strlen(c->path) + 32 > PATH)
        return attn__fail(c->context, ATTN_ARGUMENT, "%.60s...: the path is too long", c->path);
    snprintf(c->config, PATH, "%.*s%sconfig.json", length, c->path, length || slash ? "/" : "");
    return ATTN_OK;
}

static attn_status read_files(checkpoint *c)
{
    attn_status status = find_config(c);
    if (status == ATTN_OK)
        status = attn_weights_read(&c->tensors, c->path, NULL, NULL, NULL);
    if (status == ATTN_OK && !attn__vit_family_of(&c->tensors, &c->family))
        status = attn__fail(c->context, ATTN_FORMAT,
                            "%s: no Vision Transformer by the names of Hugging Face "
                            "(embeddings.cls_token) or timm (blocks.0.attn.qkv.weight)",
                            c->path);
    bool named_here = status == ATTN_OK && c->family != ATTN__VIT_TIMM;
    if (named_here && !attn_file_exists(c->config))
        status = attn__fail(c->context, ATTN_NOT_FOUND,
                            "%s: config.json is needed beside it, for the number of heads, "
                            "the norms' eps and the activation",
                            c->path);
    if (status != ATTN_OK)
        return status;
    return named_here ? attn_config_read(&c->settings, c->context, c->config)
                      : attn_config_create(&c->settings, c->context);
}

/* The checkpoint's tensor for the parameter `own`; NULL if it has none. */
static attn_tensor *tensor_for(const checkpoint *c, const char *own)
{
    attn__vit_place place;
    return attn__vit_place_of(c->family, own, &place) ? attn_named_find(&c->tensors, place.name) : NULL;
}

/* --------------------------------------------------------------------------------------------- settings */

static attn_status missing(const checkpoint *c, const char *own)
{
    attn__vit_place place = {.name = ""};
    (void)attn__vit_place_of(c->family, own, &place);
    return attn__fail(c->context, ATTN_SHAPE, "%s: tensor %s is missing, or has another number of axes", c->path,
                      place.name);
}

/* Heads of the published plain models of each width. */
static int64_t heads_of(int64_t width)
{
    return width == 1280 ? 16 : width % 64 == 0 && width <= 1024 ? width / 64 : 0;
}

static int64_t count_blocks(const checkpoint *c)
{
    char name[48];
    int64_t n = 0;
    do {
        snprintf(name, sizeof name, "blks.%d.ln1.weight", (int)n++);
    } while (tensor_for(c, name));
    return n - 1;
}

typedef struct size {
    const char *key;
    int64_t value;
} size;

static attn_status set_sizes(checkpoint *c, const attn_vit_options *o, attn_config *config)
{
    const attn_tensor *patch = tensor_for(c, "patch_embedding.conv.weight"), *places = tensor_for(c, "pos_embedding");
    const attn_tensor *hidden = tensor_for(c, "blks.0.mlp.dense1.weight"), *head = tensor_for(c, "head.1.weight");
    if (!patch || attn_tensor_rank(patch) != 4)
        return missing(c, "patch_embedding.conv.weight");
    if (!places || attn_tensor_rank(places) != 3)
        return missing(c, "pos_embedding");
    if (!hidden || attn_tensor_rank(hidden) != 2)
        return missing(c, "blks.0.mlp.dense1.weight");
    c->grid = (int64_t)sqrt((double)(attn_tensor_dim(places, 1) - 1) + 0.5);
    if (c->grid < 1 || c->grid * c->grid != attn_tensor_dim(places, 1) - 1)
        return attn__fail(c->context, ATTN_UNSUPPORTED,
                          "%s: %" PRId64 " positions are no class token and a square of "
                          "patches",
                          c->path, attn_tensor_dim(places, 1));
    c->has_head =
        head && attn_tensor_rank(head) == 2 && (!o->num_classes || o->num_classes == attn_tensor_dim(head, 0));
    if ((!head || attn_tensor_rank(head) != 2) && !o->num_classes)
        return attn__fail(c->context, ATTN_ARGUMENT, "%s has no classifier: num_classes would begin one", c->path);
    int64_t width = attn_tensor_dim(patch, 0), side = attn_tensor_dim(patch, 2), heads = o->num_heads;
    heads = heads ? heads : attn_config_int(c->settings, "num_attention_heads", heads_of(width));
    if (heads < 1)
        return attn__fail(c->context, ATTN_ARGUMENT,
                          "%s: %" PRId64 " channels could be any number of heads; num_heads "
                          "is needed",
                          c->path, width);
    const size sizes[] = {{"img_size", o->img_size ? o->img_size : c->grid * side},
                          {"patch_size", side},
                          {"num_hiddens", width},
                          {"mlp_num_hiddens", attn_tensor_dim(hidden, 0)},
                          {"num_heads", heads},
                          {"num_blks", count_blocks(c)},
                          {"num_classes", c->has_head || !o->num_classes ? attn_tensor_dim(head, 0) : o->num_classes},
                          {"in_channels", attn_tensor_dim(patch, 1)}};
    attn_status status = ATTN_OK;
    for (size_t i = 0; status == ATTN_OK && i < sizeof sizes / sizeof *sizes; i++)
        status = attn_config_set_int(config, sizes[i].key, sizes[i].value);
    return status;
}

/* The defaults of transformers' ViTConfig where config.json is silent; timm's own otherwise. */
static attn_status make_config(checkpoint *c, const attn_vit_options *o, attn_config **config)
{
    double eps = c->family == ATTN__VIT_TIMM ? 1e-6 : attn_config_real(c->settings, "layer_norm_eps", 1e-12);
    attn_status status = attn_config_create(config, c->context);
    if (status == ATTN_OK)
        status = set_sizes(c, o, *config);
    if (status == ATTN_OK)
        status = attn_config_set_bool(*config, "use_bias", true);
    if (status == ATTN_OK)
        status = attn_config_set_real(*config, "layer_norm_eps", eps);
    return status == ATTN_OK
               ? attn_config_set_text(*config, "hidden_act", attn_config_text(c->settings, "hidden_act", "gelu"))
               : status;
}

/* -------------------------------------------------------------------------------------------- parameters */

static attn_status misshapen(const checkpoint *c, const char *name)
{
    return attn__fail(c->context, ATTN_SHAPE, "%s: tensor %s has not the shape that the others ask for", c->path, name);
}

/* Bicubic, as Hugging Face and timm do it; the class token's position stays. */
static attn_status resize_positions(const checkpoint *c, const attn_tensor *from, attn_tensor *to)
{
    attn_tape *tape = NULL;
    int64_t width = attn_tensor_dim(to, 2), n = attn_tensor_dim(to, 1) - 1, side = (int64_t)sqrt((double)n + 0.5);
    if (attn_tensor_rank(from) != 3 || attn_tensor_dim(from, 2) != width)
        return misshapen(c, "of positions");
    attn_status status = attn_tape_create(&tape, c->context);
    if (status != ATTN_OK)
        return status;
    const float *data = attn_tensor_data(from);
    float *out = attn_tensor_data(to);
    attn_tensor *map = attn_tensor_make(tape, ATTN_F32, 3, (int64_t[]){c->grid, c->grid, width}, data + width);
    map = attn_resize(tape, attn_resize(tape, map, 0, side, ATTN_CUBIC), 1, side, ATTN_CUBIC);
    if (map) {
        memcpy(out, data, (size_t)width * sizeof *out);
        memcpy(out + width, attn_tensor_data(map), (size_t)(n * width) * sizeof *out);
    }
    attn_tape_destroy(tape);
    return map ? ATTN_OK : attn_context_status(c->context);
}

static bool is_qkv_bias(const char *own)
{
    size_t n = strlen(own);
    return n > 10 && strstr(own, ".attention.W_") && strcmp(own + n - 5, ".bias") == 0 && own[n - 6] != 'o';
}

static attn_status fill_parameter(const checkpoint *c, const attn_named *parameter)
{
    attn__vit_place place;
    attn_tensor *to = parameter->tensor;
    if (!attn__vit_place_of(c->family, parameter->name, &place))
        return attn__fail(c->context, ATTN_INTERNAL, "vit: parameter %s has no name elsewhere", parameter->name);
    const attn_tensor *from = attn_named_find(&c->tensors, place.name);
    size_t bytes = (size_t)attn_tensor_size(to) * sizeof(float);
    if (place.head && !c->has_head)
        return ATTN_OK; /* fresh */
    if (!from && is_qkv_bias(parameter->name)) {
        memset(attn_tensor_data(to), 0, bytes);
        return ATTN_OK;
    }
    if (!from)
        return missing(c, parameter->name);
    if (strcmp(parameter->name, "pos_embedding") == 0 && attn_tensor_size(from) != attn_tensor_size(to))
        return resize_positions(c, from, to);
    int64_t parts = place.part < 0 ? 1 : 3;
    if (attn_tensor_rank(from) != attn_tensor_rank(to) || attn_tensor_size(from) != parts * attn_tensor_size(to) ||
        attn_tensor_dim(from, 0) != parts * attn_tensor_dim(to, 0) || attn_tensor_dtype(from) != ATTN_F32)
        return misshapen(c, place.name);
    memcpy(attn_tensor_data(to), (const char *)attn_tensor_data(from) + (parts == 3 ? (size_t)place.part * bytes : 0),
           bytes);
    return ATTN_OK;
}

/* A tensor that nobody asked for may change the function: then this is no plain Vision Transformer. */
static attn_status check_extra(const checkpoint *c, const attn_named_list *parameters)
{
    for (int64_t i = 0; i < c->tensors.n; i++) {
        bool wanted = attn__vit_may_skip(c->family, c->tensors.items[i].name);
        for (int64_t j = 0; !wanted && j < parameters->n; j++) {
            attn__vit_place place;
            wanted = attn__vit_place_of(c->family, parameters->items[j].name, &place) &&
                     strcmp(place.name, c->tensors.items[i].name) == 0;
        }
        if (!wanted)
            return attn__fail(c->context, ATTN_UNSUPPORTED, "%s: tensor %s is no part of a plain Vision Transformer",
                              c->path, c->tensors.items[i].name);
    }
    return ATTN_OK;
}

static attn_status build(checkpoint *c, const attn_vit_options *o, attn_model **model)
{
    attn_config *config = NULL;
    attn_status status = make_config(c, o, &config);
    if (status == ATTN_OK)
        status = attn_model_create(model, c->context, "vit", config, &(attn_model_options){.seed = o->seed});
    attn_config_destroy(config);
    attn_named_list *parameters = status == ATTN_OK ? attn_model_parameters(*model) : NULL;
    if (status == ATTN_OK)
        status = check_extra(c, parameters);
    for (int64_t i = 0; status == ATTN_OK && i < parameters->n; i++)
        status = fill_parameter(c, &parameters->items[i]);
    return status;
}

attn_status attn_vit_load(attn_model **model, attn_context *context, const char *path, const attn_vit_options *options)
{
    attn_vit_options o = options ? *options : (attn_vit_options){0};
    checkpoint c = {.context = context, .path = path, .tensors = {.context = context, .owns = true}};
    *model = NULL;
    attn_status status = attn_context_status(context);
    if (status == ATTN_OK)
        status = read_files(&c);
    if (status == ATTN_OK)
        status = build(&c, &o, model);
    if (status != ATTN_OK) {
        attn_model_destroy(*model);
        *model = NULL;
    }
    attn_config_destroy(c.settings);
    attn_named_clear(&c.tensors);
    return status;
}
