/* SPDX-License-Identifier: MIT
 *
 * Defines DETR. A residual network computes a feature map. The Transformer's encoder runs on the cells of this map, and
 * its decoder on learned queries. Heads compute a class and a box for each query.
 */
#include "models/resnet_parts.h"

#include "base/context.h"
#include "nn/named.h"
#include "tensor/tape_state.h"
#include "tensor/tensor.h"

#include <string.h>

enum { BOX = 4, BOX_LAYERS = 3, LEARNED_MOST = 50 };

static const char *const position_choices[] = {"sine", "learned", NULL};

#define BLOCKS_KEY(name, doc)                                                                                          \
    {                                                                                                                  \
        name, ATTN_CONFIG_TYPE_INT, "6", 1, ATTN__MAX_BLOCKS, NULL, doc                                                \
    }
static const attn_setting keys[] = {
    ATTN__KEYS_RESNET(
        "frozen", "parts of the backbone that are not trained: 1 the stem, 2 the first stage too, and so on; default 2 "
                  "with frozen norms, else 0"),
    ATTN__KEY_COUNT("num_classes", "91", "classes; \"no object\" is one more, the last"),
    ATTN__KEY_COUNT("num_queries", "100", "boxes that are predicted"),
    ATTN__KEY_COUNT("hidden_dim", "256", "channels, a multiple of 4; nheads divides them"),
    ATTN__KEY_COUNT("nheads", "8", "attention heads"),
    ATTN__KEY_COUNT("dim_feedforward", "2048", "channels inside the feed-forward networks"),
    BLOCKS_KEY("enc_layers", "blocks of the encoder"),
    BLOCKS_KEY("dec_layers", "blocks of the decoder"),
    ATTN__KEY_FLAG("pre_norm", "false", "norms before the layers, and one behind the encoder"),
    {"position_embedding", ATTN_CONFIG_TYPE_TEXT, "sine", 0, 0, position_choices,
     "positions of places: sine, or learned for at most 50 rows and columns"},
    {"dropout", ATTN_CONFIG_TYPE_REAL, "0.1", 0, 0.99, NULL, "share of numbers dropped in training"},
    ATTN__KEY_INIT,
};
static const attn_port inputs[] = {
    ATTN__PORT("x", "(b,in_channels,h,w)", "images, normalized"),
    {"mask", "(b,h,w)", true, true, "1 where there is padding; left out: nowhere"},
    {"points", "(n)", true, true, "places whose encoder_weights are given, row by row; left out: all"},
    {"queries", "(m)", true, true, "queries whose decoder_weights and cross_weights are given; left out: all"},
};
static const attn_port outputs[] = {
    ATTN__PORT("pred_logits", "(b,num_queries,num_classes+1)", "scores of the classes, the last for no object"),
    ATTN__PORT("pred_boxes", "(b,num_queries,4)", "centre x, centre y, width, height as shares of the unpadded image"),
    ATTN__PORT_OPTIONAL("aux_logits", "(dec_layers-1,b,num_queries,num_classes+1)", "of the decoder's other blocks"),
    ATTN__PORT_OPTIONAL("aux_boxes", "(dec_layers-1,b,num_queries,4)", "of the decoder's other blocks"),
    ATTN__PORT_OPTIONAL("encoder_weights", "(enc_layers,b,nheads,n,y*x)", "of places over the y rows and x columns"),
    ATTN__PORT_OPTIONAL("decoder_weights", "(dec_layers,b,nheads,m,num_queries)", "of queries over queries"),
    ATTN__PORT_OPTIONAL("cross_weights", "(dec_layers,b,nheads,m,y*x)", "of queries over places"),
};

typedef struct detr {
    attn__resnet backbone;
    attn_nn_linear input_proj, class_embed, bbox_embed[BOX_LAYERS];
    attn_nn_learned_positions learned; /* learned positions; if their weights are NULL, sine positions are used */
    attn_tensor *query_embed;
    attn_nn_encoder_block encoder[ATTN__MAX_BLOCKS];
    attn_nn_decoder_block decoder[ATTN__MAX_BLOCKS];
    attn_nn_layer_norm encoder_norm, decoder_norm;
    int encoder_blocks, decoder_blocks;
    int64_t hidden, queries, in_channels;
} detr;

/* ------------------------------------------------------------------------------------------------ build */

static void blocks_build(detr *m, attn_nn_builder *builder, const attn_config *config)
{
    double dropout = attn_config_real(config, "dropout", 0);
    attn_nn_block_options options = {.hidden = m->hidden,
                                     .ffn_hidden = attn_config_int(config, "dim_feedforward", 0),
                                     .heads = attn_config_int(config, "nheads", 0),
                                     .dropout = dropout,
                                     .ffn_dropout = dropout,
                                     .bias = true,
                                     .pre_norm = attn_config_bool(config, "pre_norm", false)};
    m->encoder_blocks = (int)attn_config_int(config, "enc_layers", 0);
    m->decoder_blocks = (int)attn_config_int(config, "dec_layers", 0);
    for (int i = 0; i < m->encoder_blocks; i++) {
        attn_nn_pushf(builder, "encoder.blks.block%d", i);
        attn_nn_encoder_block_init(&m->encoder[i], builder, &options);
        attn_nn_pop(builder);
    }
    if (options.pre_norm)
        attn__nn_layer_norm_named(&m->encoder_norm, builder, "encoder.norm", m->hidden, 0);
    for (int i = 0; i < m->decoder_blocks; i++) {
        attn_nn_pushf(builder, "decoder.blks.block%d", i);
        attn_nn_decoder_block_init(&m->decoder[i], builder, &options);
        attn_nn_pop(builder);
    }
    attn__nn_layer_norm_named(&m->decoder_norm, builder, "decoder.norm", m->hidden, 0);
}

static void heads_build(detr *m, attn_nn_builder *builder, const attn_config *config)
{
    attn__nn_linear_named(&m->class_embed, builder, "class_embed", m->hidden,
                          attn_config_int(config, "num_classes", 0) + 1, true);
    for (int i = 0; i < BOX_LAYERS; i++) {
        attn_nn_pushf(builder, "bbox_embed.layers.%d", i);
        attn_nn_linear_init(&m->bbox_embed[i], builder, m->hidden, i < BOX_LAYERS - 1 ? m->hidden : BOX, true);
        attn_nn_pop(builder);
    }
}

static void build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    detr *m = self;
    m->hidden = attn_config_int(config, "hidden_dim", 0);
    m->queries = attn_config_int(config, "num_queries", 0);
    m->in_channels = attn_config_int(config, "in_channels", 0);
    if (m->hidden % 4 != 0) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT, "detr: hidden_dim is %lld; it must be a multiple of 4",
                   (long long)m->hidden);
        return;
    }
    attn_nn_push(builder, "backbone");
    attn__resnet_build(&m->backbone, builder, config, 2);
    attn_nn_pop(builder);
    if (m->backbone.channels < 1)
        return;
    attn__nn_linear_named(&m->input_proj, builder, "input_proj", m->backbone.channels, m->hidden, true);
    if (attn__config_choice(config, "position_embedding", position_choices) == 1) {
        attn_nn_push(builder, "positions");
        attn_nn_learned_positions_init(&m->learned, builder, m->hidden / 2, LEARNED_MOST);
        attn_nn_pop(builder);
    }
    attn_nn_push(builder, "query_embed");
    m->query_embed = attn_nn_parameter(builder, "weight", 2, (int64_t[]){m->queries, m->hidden},
                                       (attn_nn_initializer){.start = ATTN_INIT_NORMAL});
    attn_nn_pop(builder);
    blocks_build(m, builder, config);
    heads_build(m, builder, config);
}

/* ------------------------------------------------------------------------------------------ what is seen */

/* The cells of the backbone's feature map, as input of the Transformer. */
typedef struct scene {
    int64_t batch, rows, cols;
    attn_tensor *tokens, *positions; /* tokens: [B,T,D]; positions: [1,T,D] or [B,T,D] */
    attn_tensor *padding, *keys;     /* padding: U8 [B,Y,X]; keys: U8 [B,T]; both are NULL if there is no padding */
} scene;

/* Returns the index of the source pixel for index i of n output pixels. The scale is computed in single precision,
 * as in PyTorch's interpolation "nearest". */
static int64_t nearest(int64_t i, int64_t n, int64_t pixels)
{
    float scale = (float)pixels / (float)n;
    int64_t at = (int64_t)((float)i * scale);
    return at < pixels ? at : pixels - 1;
}

/* Scales the mask to the size of the feature map. Returns false and sets an error if the mask does not fit x, or if
 * there is no memory. */
static bool read_mask(scene *s, attn_tape *tape, const attn_tensor *x, const attn_tensor *mask)
{
    const int64_t *n = attn_tensor_shape(x), places[2] = {s->batch, s->rows * s->cols};
    if (attn_tensor_rank(mask) != 3 || attn_tensor_length(mask, 0) != n[0] || attn_tensor_length(mask, 1) != n[2] ||
        attn_tensor_length(mask, 2) != n[3]) {
        char found[ATTN__SHAPE_TEXT];
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE,
                   "detr: expected mask [%lld,%lld,%lld], the sizes of x, found %s", (long long)n[0], (long long)n[2],
                   (long long)n[3], attn__shape_text(mask, found));
        return false;
    }
    s->padding = attn_tape_tensor(tape, ATTN_U8, 3, (int64_t[]){s->batch, s->rows, s->cols}, NULL);
    s->keys = attn_tape_tensor(tape, ATTN_U8, 2, places, NULL);
    if (!s->padding || !s->keys)
        return false;
    const int32_t *from = attn_tensor_data(mask);
    uint8_t *padding = attn_tensor_data(s->padding), *keep = attn_tensor_data(s->keys);
    for (int64_t i = 0; i < places[0] * places[1]; i++) {
        int64_t row = nearest(i / s->cols % s->rows, s->rows, n[2]), col = nearest(i % s->cols, s->cols, n[3]);
        padding[i] = from[(i / places[1] * n[2] + row) * n[3] + col] != 0;
        keep[i] = !padding[i];
    }
    return true;
}

static attn_tensor *positions_of(const detr *m, attn_tape *tape, const scene *s, attn_dtype dtype)
{
    const double two_pi = 6.283185307179586476925;
    attn_tensor *places;
    if (m->learned.row) {
        places = attn_nn_learned_positions_forward(&m->learned, tape, s->rows, s->cols);
    } else {
        const attn_nn_sine_positions sines = {.feats = m->hidden / 2, .temperature = 10000, .scale = two_pi};
        places = attn_nn_sine_positions_forward(&sines, tape, dtype,
                                                (int64_t[]){s->padding ? s->batch : 1, s->rows, s->cols}, s->padding);
    }
    return attn_reshape(tape, places, 3, (int64_t[]){-1, s->rows * s->cols, m->hidden});
}

static bool see(const detr *m, attn_tape *tape, attn_tensor *x, const attn_tensor *mask, scene *s)
{
    bool images =
        x && attn_tensor_rank(x) == 4 && attn_tensor_length(x, 1) == m->in_channels && attn_tensor_size(x) > 0;
    if (!images && x) {
        char found[ATTN__SHAPE_TEXT];
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE, "detr: expected x [b,%lld,h,w], found %s",
                   (long long)m->in_channels, attn__shape_text(x, found));
    }
    attn_tensor *map = images ? attn__resnet_forward(&m->backbone, tape, x) : NULL;
    if (!map)
        return false;
    s->batch = attn_tensor_length(map, 0);
    s->rows = attn_tensor_length(map, 2);
    s->cols = attn_tensor_length(map, 3);
    if (mask && !read_mask(s, tape, x, mask))
        return false;
    map = attn_reshape(tape, map, 3, (int64_t[]){s->batch, m->backbone.channels, s->rows * s->cols});
    s->tokens = attn_nn_linear_forward(&m->input_proj, tape, attn_permute(tape, map, (int[]){0, 2, 1}));
    s->positions = positions_of(m, tape, s, attn_tensor_dtype(x));
    return s->tokens && s->positions;
}

/* ---------------------------------------------------------------------------------------------- forward */

/* The attention weights that the caller requested, of all blocks. */
typedef struct weights {
    attn_named_list maps;
    /* points: I32 [n] indices of the encoder's queries, and queries: I32 [m] indices of the decoder's queries, whose
     * weights are returned; NULL: all queries */
    const attn_tensor *points, *queries;
    bool encoder, decoder, cross;
} weights;

/* Returns the rows of the map [B,H,T,S] whose query indices are in `rows`. Sets an error if an index is out of
 * range. */
static attn_tensor *rows_of(attn_tape *tape, attn_tensor *map, const attn_tensor *rows)
{
    if (!map || !rows)
        return map;
    map = attn_index_select(tape, attn_permute(tape, map, (int[]){2, 0, 1, 3}), rows);
    return attn_permute(tape, map, (int[]){1, 2, 0, 3});
}

static attn_tensor *encode(const detr *m, attn_tape *tape, const scene *s, weights *w)
{
    const attn_nn_mask mask = {.keys = s->keys};
    attn_tensor *x = s->tokens;
    for (int i = 0; i < m->encoder_blocks; i++) {
        attn_tensor *map = NULL;
        attn__block_begin(tape, w->encoder);
        x = attn_nn_encoder_block_forward(&m->encoder[i], tape, x, s->positions, &mask, w->encoder ? &map : NULL);
        x = attn__block_end(tape, w->encoder, x);
        attn__weights_add(&w->maps, "encoder", i, rows_of(tape, map, w->points));
    }
    return m->encoder_norm.weight ? attn_nn_layer_norm_forward(&m->encoder_norm, tape, x) : x;
}

/* Runs the decoder. Returns the outputs of its blocks after the norm, [L,B,Q,D]. If `all` is false, only the last
 * block's output is returned, so L is 1. */
static attn_tensor *decode(const detr *m, attn_tape *tape, const scene *s, attn_tensor *encoded, bool all, weights *w)
{
    const attn_nn_mask cross = {.keys = s->keys};
    const int64_t shape[4] = {1, s->batch, m->queries, m->hidden};
    const attn_nn_positions positions = {attn_reshape(tape, m->query_embed, 3, (int64_t[]){1, m->queries, m->hidden}),
                                         s->positions};
    attn_tensor *x = encoded ? attn_tape_tensor(tape, attn_tensor_dtype(encoded), 3, shape + 1, NULL) : NULL;
    attn_tensor *found[ATTN__MAX_BLOCKS];
    bool keep = w->decoder || w->cross;
    int n = 0;
    for (int i = 0; i < m->decoder_blocks; i++) {
        attn_tensor *own = NULL, *seen = NULL;
        attn__block_begin(tape, keep);
        x = attn_nn_decoder_block_forward(&m->decoder[i], tape, x, encoded, &positions, NULL, &cross,
                                          w->decoder ? &own : NULL, w->cross ? &seen : NULL);
        x = attn__block_end(tape, keep, x);
        attn__weights_add(&w->maps, "decoder", i, rows_of(tape, own, w->queries));
        attn__weights_add(&w->maps, "cross", i, rows_of(tape, seen, w->queries));
        if (all || i == m->decoder_blocks - 1)
            found[n++] = attn_reshape(tape, x, 4, shape);
    }
    return attn_nn_layer_norm_forward(&m->decoder_norm, tape, attn_concat(tape, found, n, 0));
}

static attn_tensor *boxes_of(const detr *m, attn_tape *tape, attn_tensor *x)
{
    for (int i = 0; i < BOX_LAYERS; i++) {
        x = attn_linear(tape, x, m->bbox_embed[i].weight, m->bbox_embed[i].bias,
                        i < BOX_LAYERS - 1 ? ATTN_ACTIVATION_RELU : ATTN_ACTIVATION_SIGMOID);
    }
    return x;
}

/* Sets one or two outputs from y [L,B,Q,.]. The output `name` gets the last block's values. If the output `aux` is
 * requested, it gets the values of the other blocks. */
static void give(const attn__call *call, const char *name, const char *aux, attn_tensor *y)
{
    attn_tensor *slot;
    if (!y)
        return;
    int64_t n = attn_tensor_length(y, 0);
    attn_tensor *last = n > 1 ? attn_slice(call->tape, y, 0, n - 1, n) : y;
    attn__call_output(call, name, attn_reshape(call->tape, last, 3, attn_tensor_shape(y) + 1));
    if (attn__wanted(call, aux, &slot))
        attn__call_output(call, aux, attn_slice(call->tape, y, 0, 0, n - 1));
}

static weights weights_wanted(const attn__call *call)
{
    attn_tensor *slot;
    return (weights){.maps = {.context = attn_tape_context(call->tape)},
                     .points = attn__call_input(call, "points"),
                     .queries = attn__call_input(call, "queries"),
                     .encoder = attn__wanted(call, "encoder_weights", &slot) != NULL,
                     .decoder = attn__wanted(call, "decoder_weights", &slot) != NULL,
                     .cross = attn__wanted(call, "cross_weights", &slot) != NULL};
}

static void give_weights(const attn__call *call, const weights *w)
{
    const struct {
        bool wanted;
        const char *name, *part;
    } all[] = {{w->encoder, "encoder_weights", "encoder"},
               {w->decoder, "decoder_weights", "decoder"},
               {w->cross, "cross_weights", "cross"}};
    for (int i = 0; i < ATTN__COUNT(all); i++)
        if (all[i].wanted)
            attn__call_output(call, all[i].name, attn__stack(call->tape, &w->maps, all[i].part));
}

static void forward(const void *self, const attn__call *call)
{
    const detr *m = self;
    attn_tape *tape = call->tape;
    attn_tensor *x = attn__call_input(call, "x"), *mask = attn__call_input(call, "mask"), *slot;
    bool all = attn__wanted(call, "aux_logits", &slot) || attn__wanted(call, "aux_boxes", &slot);
    weights w = weights_wanted(call);
    scene s = {0};
    if (see(m, tape, x, mask, &s)) {
        attn_tensor *y = decode(m, tape, &s, encode(m, tape, &s, &w), all, &w);
        give(call, "pred_logits", "aux_logits", attn_nn_linear_forward(&m->class_embed, tape, y));
        give(call, "pred_boxes", "aux_boxes", boxes_of(m, tape, y));
        give_weights(call, &w);
    }
    attn_named_clear(&w.maps);
}

const attn__kind attn__kind_detr = {
    .about = {.name = "detr",
              .summary = "a residual network and a Transformer whose queries are boxes: detects objects",
              .source = "Carion et al. 2020, arXiv:2005.12872",
              ATTN__PORTS(keys, inputs, outputs)},
    .size = sizeof(detr),
    .build = build,
    .forward = forward,
};
