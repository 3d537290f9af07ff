/* SPDX-License-Identifier: MIT
 * Loads foreign Vision Transformers: settings from shapes and config.json, parameters by a names file. */
#include "apps/checkpoint/vit_config.h"

#include "attn/io.h"
#include "base/context.h"
#include "config/keys.h"
#include "io/images/image.h"
#include "io/tensors/weights.h"
#include "io/directory.h"
#include "io/names/names.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct checkpoint {
    attn_context *context;
    const char *path;
    attn__vit_config *beside;
    attn_named_list tensors;
    attn_name_map *names;
    /* height and width of a patch in pixels; number of patches that have positions, along height and width */
    int64_t patch[2], grid[2];
    bool has_head;
} checkpoint;

/* ---------------------------------------------------------------------------------------------- finding */

/* Chooses the built-in names file that matches the checkpoint's tensors. */
static attn_status choose_names(checkpoint *c)
{
    attn_status status = attn__identify_tensors(&c->beside->is);
    const char *name = c->beside->is.tensor_names;
    if (status == ATTN_OK && (!name || strncmp(name, "vit-", 4) != 0))
        status = attn__fail(
            c->context, ATTN_ERROR_FORMAT,
            "%s: the tensors are not those of a Vision Transformer of Hugging Face (such as embeddings.cls_token) "
            "or timm (such as blocks.0.attn.qkv.weight)",
            c->path);
    if (status != ATTN_OK || !name)
        return status;
    c->beside->hugging_face = strcmp(name, "vit-huggingface") == 0;
    return attn_name_map_read(&c->names, c->context, name);
}

static attn_status read_files(checkpoint *c)
{
    attn_status status = attn__vit_config_open(c->beside, c->context, c->path);
    if (status == ATTN_OK)
        status = choose_names(c);
    if (status == ATTN_OK && c->beside->hugging_face && !attn_file_exists(c->beside->path))
        status = attn__fail(c->context, ATTN_ERROR_NOT_FOUND,
                            "%s: the config.json of the model is missing, which gives the number of heads, the norms' "
                            "eps and the activation",
                            c->path);
    return status == ATTN_OK
               ? attn_weights_read(&c->tensors, c->path, &(attn_weights_options){.names = c->names}, NULL, NULL)
               : status;
}

/* Returns the checkpoint's tensor for the model's parameter `own`. Returns NULL if the checkpoint does not have it. */
static attn_tensor *tensor_for(const checkpoint *c, const char *own)
{
    return attn_named_find(&c->tensors, own);
}

static attn_status fail_axes(const checkpoint *c, const char *name, int axes)
{
    const attn_tensor *tensor = tensor_for(c, name);
    if (!tensor)
        return attn__fail(c->context, ATTN_ERROR_SHAPE, "%s: tensor %s is missing", c->path, name);
    return attn__fail(c->context, ATTN_ERROR_SHAPE, "%s: tensor %s has %d axes; expected %d", c->path, name,
                      attn_tensor_rank(tensor), axes);
}

/* --------------------------------------------------------------------------------------------- settings */

/* Settings that are determined from shapes, each with the tensor whose shape is used. */
static const struct needed {
    const char *setting, *tensor;
    int axes;
} needed[] = {{"num_hiddens", "patch_embedding.conv.weight", 4},
              {"in_channels", "patch_embedding.conv.weight", 4},
              {"patch_size", "patch_embedding.conv.weight", 4},
              {"mlp_num_hiddens", "blks.0.mlp.dense1.weight", 2},
              {NULL, NULL, 0}};

/* Adds the settings of config.json and then those determined from shapes. All other settings have the defaults of
 * transformers' ViTConfig. */
static attn_status measure(checkpoint *c, attn_config *config)
{
    attn_checkpoint *weights;
    attn_status status =
        attn_checkpoint_open(&weights, c->context, c->path, &(attn_weights_options){.names = c->names}, NULL);
    if (status == ATTN_OK && c->beside->hugging_face)
        status = attn_config_set_real(config, "layer_norm_eps",
                                      attn_config_real(c->beside->config, "layer_norm_eps", 1e-12));
    if (status == ATTN_OK && c->beside->hugging_face)
        status = attn_config_set_text(config, "hidden_act", attn_config_text(c->beside->config, "hidden_act", "gelu"));
    if (status == ATTN_OK)
        status = attn_name_map_infer_config(c->names, weights, config);
    attn_checkpoint_close(weights);
    for (int i = 0; status == ATTN_OK && needed[i].setting; i++)
        if (attn_config_int(config, needed[i].setting, 0) < 1)
            status = fail_axes(c, needed[i].tensor, needed[i].axes);
    return status;
}

static attn_status measure_patch(checkpoint *c)
{
    const attn_tensor *weight = tensor_for(c, "patch_embedding.conv.weight");
    if (!weight || attn_tensor_rank(weight) != 4)
        return fail_axes(c, "patch_embedding.conv.weight", 4);
    for (int i = 0; i < 2; i++)
        c->patch[i] = attn_tensor_length(weight, 2 + i);
    return ATTN_OK;
}

/* Reports whether the settings give pictures or patches that are not square and that fit the number of positions.
 * The shape of the positions cannot show this, because it gives only the total number of patches. */
static bool is_oblong(checkpoint *c, int64_t patches)
{
    int64_t sides[2] = {0, 0};
    bool said = attn__vit_sides(c->beside, sides) && c->patch[0] > 0 && c->patch[1] > 0;
    for (int i = 0; said && i < 2; i++)
        c->grid[i] = sides[i] / c->patch[i];
    return said && (sides[0] != sides[1] || c->patch[0] != c->patch[1]) && c->grid[0] * c->grid[1] == patches;
}

static attn_status measure_grid(checkpoint *c, attn_config *config)
{
    attn_status status = measure_patch(c);
    if (status != ATTN_OK)
        return status;
    const attn_tensor *places = tensor_for(c, "pos_embedding");
    if (!places || attn_tensor_rank(places) != 3)
        return fail_axes(c, "pos_embedding", 3);
    int64_t patches = attn_tensor_length(places, 1) - 1;
    if (is_oblong(c, patches))
        return attn__config_set_sides(config, "patch_size", c->patch);
    if (c->patch[0] != c->patch[1])
        return attn__fail(c->context, ATTN_ERROR_SHAPE,
                          "%s: the patches are not square (%" PRId64 " x %" PRId64
                          " pixels), so a config.json must give an image size that makes the %" PRId64
                          " patches of the tensors",
                          c->path, c->patch[0], c->patch[1], patches);
    c->grid[0] = c->grid[1] = (int64_t)sqrt((double)patches + 0.5);
    if (c->grid[0] < 1 || c->grid[0] * c->grid[1] != patches)
        return attn__fail(c->context, ATTN_ERROR_UNSUPPORTED,
                          "%s: the tensors have positions for %" PRId64
                          " patches, which is not a square number, so a config.json must give the height and width of "
                          "the pictures",
                          c->path, patches);
    return ATTN_OK;
}

/* If the caller gives no size, it is the checkpoint's. */
static attn_status choose_sides(const checkpoint *c, const attn_vit_options *o, int64_t sides[2])
{
    bool asked = o->img_size[0] != 0, square = c->grid[0] == c->grid[1] && c->patch[0] == c->patch[1];
    for (int i = 0; i < 2; i++)
        sides[i] = asked ? o->img_size[i] : 0;
    if (asked || (!square && attn__vit_sides(c->beside, sides)))
        return ATTN_OK;
    attn_status status = attn__vit_picture(c->beside, c->grid[0], c->patch[0], &sides[0]);
    sides[1] = sides[0];
    return status;
}

/* Chooses the settings that shapes do not determine, and the settings that the caller overrides. */
static attn_status choose(checkpoint *c, const attn_vit_options *o, attn_config *config)
{
    int64_t width = attn_config_int(config, "num_hiddens", 0), sides[2] = {0, 0};
    int64_t classes = attn_config_int(config, "num_classes", 0), heads = o->num_heads;
    c->has_head = classes > 0 && (!o->num_classes || o->num_classes == classes);
    if (classes < 1 && !o->num_classes)
        return attn__fail(c->context, ATTN_ERROR_ARGUMENT,
                          "%s: the weights have no classifier; attn train classify --from adds one", c->path);
    attn_status status = attn__vit_agrees(c->beside, config);
    if (status == ATTN_OK && heads == 0)
        status = attn__vit_heads(c->beside, width, &heads);
    if (status == ATTN_OK)
        status = choose_sides(c, o, sides);
    if (status == ATTN_OK)
        status = attn_config_set_int(config, "num_heads", heads);
    if (status == ATTN_OK)
        status = attn__config_set_sides(config, "img_size", sides);
    return status == ATTN_OK && !c->has_head ? attn_config_set_int(config, "num_classes", o->num_classes) : status;
}

static attn_status make_config(checkpoint *c, const attn_vit_options *o, attn_config **config)
{
    attn_status status = attn_config_create(config, c->context);
    if (status == ATTN_OK)
        status = measure(c, *config);
    if (status == ATTN_OK)
        status = measure_grid(c, *config);
    return status == ATTN_OK ? choose(c, o, *config) : status;
}

/* -------------------------------------------------------------------------------------------- parameters */

static attn_status misshapen(const checkpoint *c, const char *name)
{
    return attn__fail(c->context, ATTN_ERROR_SHAPE, "%s: the shape of tensor %s does not match the other tensors",
                      c->path, name);
}

/* Resizes a map of positions with PyTorch's bicubic interpolation. */
static attn_status interpolate(const checkpoint *c, const float *from, float *to, const int64_t grid[2], int64_t width)
{
    attn_tape *tape = NULL;
    attn_status status = attn_tape_create(&tape, c->context);
    if (status != ATTN_OK)
        return status;
    attn_tensor *map = attn_tape_tensor(tape, ATTN_F32, 3, (int64_t[]){c->grid[0], c->grid[1], width}, from);
    map = attn_interpolate(tape, attn_interpolate(tape, map, 0, grid[0], ATTN_INTERPOLATE_CUBIC), 1, grid[1],
                           ATTN_INTERPOLATE_CUBIC);
    if (map)
        memcpy(to, attn_tensor_data(map), (size_t)(grid[0] * grid[1] * width) * sizeof *to);
    attn_tape_destroy(tape);
    return attn__result_status(c->context, map);
}

/* Interpolates positions in the same way as Hugging Face or as timm. timm's filter becomes wider when the map
 * shrinks. The position of the class token stays unchanged. */
static attn_status resize_positions(const checkpoint *c, const attn_tensor *from, attn_tensor *to,
                                    const int64_t grid[2])
{
    int64_t width = attn_tensor_length(to, 2);
    if (attn_tensor_rank(from) != 3 || attn_tensor_length(from, 2) != width)
        return misshapen(c, "of positions");
    const float *data = attn_tensor_data(from);
    float *out = attn_tensor_data(to);
    memcpy(out, data, (size_t)width * sizeof *out);
    return c->beside->hugging_face ? interpolate(c, data + width, out + width, grid, width)
                                   : attn__resize_map(c->context, data + width, c->grid, out + width, grid, width);
}

/* If the model's picture size differs from the checkpoint's, replaces the checkpoint's positions by interpolated
 * positions. */
static attn_status fit_positions(checkpoint *c, const attn_model *model)
{
    const attn_tensor *own = attn_named_find(attn_model_parameters(model), "pos_embedding");
    int64_t grid[2] = {0, 0};
    (void)attn__config_sides(attn_model_config(model), "img_size", grid);
    for (int i = 0; i < 2; i++)
        grid[i] /= c->patch[i];
    bool same = grid[0] == c->grid[0] && grid[1] == c->grid[1];
    for (int64_t i = 0; i < c->tensors.n && !same; i++) {
        attn_named *item = &c->tensors.items[i];
        attn_tensor *resized = NULL;
        if (strcmp(item->name, "pos_embedding") != 0)
            continue;
        attn_status status = attn_tensor_create(&resized, c->context, ATTN_F32, 3, attn_tensor_shape(own));
        if (status == ATTN_OK)
            status = resize_positions(c, item->tensor, resized, grid);
        if (status != ATTN_OK) {
            attn_tensor_destroy(resized);
            return status;
        }
        attn_tensor_destroy(item->tensor);
        item->tensor = resized;
    }
    return ATTN_OK;
}

/* Adds the tensors of a list to another list. If `head` is false, the classifier's tensors are left out. */
static attn_status borrow(attn_named_list *to, const attn_named_list *from, bool head)
{
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < from->n && status == ATTN_OK; i++)
        if (head || strncmp(from->items[i].name, "head.1.", 7) != 0)
            status = attn_named_add(to, from->items[i].name, from->items[i].tensor);
    return status;
}

/* A new head keeps its initial values. */
static attn_status fill(checkpoint *c, attn_model *model)
{
    attn_named_list to = {.context = c->context}, from = {.context = c->context};
    attn_weights_options how = {.names = c->names};
    attn_status status = fit_positions(c, model);
    if (status == ATTN_OK)
        status = borrow(&to, attn_model_parameters(model), c->has_head);
    if (status == ATTN_OK)
        status = borrow(&from, &c->tensors, c->has_head);
    if (status == ATTN_OK)
        status = attn__weights_assign(&to, &from, c->path, &how, NULL);
    attn_named_clear(&to);
    attn_named_clear(&from);
    return status;
}

static attn_status build(checkpoint *c, const attn_vit_options *o, attn_model **model)
{
    attn_config *config = NULL;
    attn_status status = make_config(c, o, &config);
    if (status == ATTN_OK)
        status = attn_model_create(model, c->context, "vit", config, &(attn_model_options){.seed = o->seed});
    attn_config_destroy(config);
    return status == ATTN_OK ? fill(c, *model) : status;
}

attn_status attn__vit_load(attn_model **model, attn_context *context, const char *path, const attn_vit_options *options,
                           attn__vit_config *beside)
{
    attn_vit_options o = options ? *options : (attn_vit_options){0};
    checkpoint c = {.context = context, .path = path, .beside = beside, .tensors = {.context = context, .owns = true}};
    *model = NULL;
    attn_status status = read_files(&c);
    if (status == ATTN_OK)
        status = build(&c, &o, model);
    if (status != ATTN_OK) {
        attn_model_destroy(*model);
        *model = NULL;
    }
    attn_name_map_destroy(c.names);
    attn_named_clear(&c.tensors);
    return status;
}

attn_status attn_vit_load(attn_model **model, attn_context *context, const char *path, const attn_vit_options *options)
{
    ATTN__CALL(context);
    attn__vit_config beside;
    attn_status status = attn__vit_load(model, context, path, options, &beside);
    attn__vit_config_close(&beside);
    return status;
}
