/* SPDX-License-Identifier: MIT
 *
 * The stack of an encoder's blocks. encoder_model.c has the heads behind it. */
#include "models/transformer_parts.h"

#include "base/context.h"
#include "nn/block.h"
#include "nn/named.h"
#include "tensor/number.h"
#include "tensor/tape_state.h"

#include <math.h>

/* Makes the table of cosines and sines [max_len,R] of rotary positions with this base. */
static attn_tensor *rotary_table(attn_nn_builder *builder, const attn_config *config, int64_t dims, const char *name,
                                 double base)
{
    int64_t shape[2] = {attn_config_int(config, "max_len", 0), dims};
    double scale = attn_config_real(config, "rotary_scale", 1);
    attn_tensor *table = attn_nn_constant(builder, name, 2, shape);
    for (int64_t i = 0; table && i < shape[0] * dims; i++) {
        int64_t position = i / dims, j = i % dims, half = dims / 2;
        double angle = (double)position / scale * pow(base, -2 * (double)(j % half) / (double)dims);
        attn__set_number(table, i, j < half ? cos(angle) : sin(angle));
    }
    return table;
}

typedef struct rotary_tables {
    attn_tensor *all, *local;
} rotary_tables;

/* Makes the tables of the blocks that attend to all tokens, and of the blocks with a window. Returns false if a setting
 * does not fit; an error is then recorded. */
static bool rotary_build(rotary_tables *tables, attn_nn_builder *builder, const attn_config *config)
{
    int64_t heads = attn__transformer_size(config, ATTN__ENCODER, "num_heads");
    int64_t hidden = attn_config_int(config, "num_hiddens", 0), dim = heads > 0 ? hidden / heads : 0;
    int64_t dims = attn_config_int(config, "rotary_dims", 0);
    double base = attn_config_real(config, "rotary_base", 10000);
    double local = attn_config_real(config, "local_rotary_base", 0);
    if (attn__config_choice(config, "rotary", attn__rotary_choices) == 0)
        return true;
    dims = dims > 0 ? dims : dim;
    if (dims > dim || dims % 2 != 0) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT,
                   dims > dim ? "rotary positions rotate %lld channels, but a head has %lld"
                              : "rotary positions rotate %lld of the %lld channels of a head; expected an even number",
                   (long long)dims, (long long)dim);
        return false;
    }
    tables->all = tables->local = rotary_table(builder, config, dims, "rotary", base);
    if (local > 0 && local != base && attn_config_int(config, "local_window", 0) > 0)
        tables->local = rotary_table(builder, config, dims, "local_rotary", local);
    return true;
}

static bool is_local(const attn__transformer_encoder *encoder, int block)
{
    return encoder->local_window > 0 && block % encoder->global_every != 0;
}

/* Returns false if the embeddings of masked tokens cannot be dropped; an error is then recorded. */
static bool masked_token_fits(const attn__transformer_encoder *encoder, attn_nn_builder *builder,
                              const attn_config *config)
{
    long long masked = encoder->front.masked_token;
    if (masked >= 0 && encoder->front.positions.table)
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT,
                   "masked_token (%lld) needs positions=none, but positions is %s", masked,
                   attn__position_choices[attn__config_choice(config, "positions", attn__position_choices)]);
    else if (masked >= 0 && encoder->front.segments.weight)
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT, "masked_token (%lld) needs segments=0, but segments is %lld",
                   masked, (long long)attn_config_int(config, "segments", 0));
    else
        return true;
    return false;
}

void attn__transformer_encoder_build(attn__transformer_encoder *encoder, attn_nn_builder *builder,
                                     const attn_config *config, int64_t vocabulary, bool bias)
{
    attn_nn_block_options options = attn__transformer_block_options(config, ATTN__ENCODER, bias);
    rotary_tables rotary = {0};
    encoder->blocks = (int)attn__transformer_size(config, ATTN__ENCODER, "num_blks");
    encoder->fill = attn_config_real(config, "mask_fill", 0);
    encoder->local_window = attn_config_int(config, "local_window", 0);
    encoder->global_every = attn_config_int(config, "global_every", 1);
    attn__transformer_front_build(&encoder->front, builder, config, vocabulary, NULL);
    if (!masked_token_fits(encoder, builder, config) || !rotary_build(&rotary, builder, config))
        return;
    options.rotary_pairs = attn__config_choice(config, "rotary", attn__rotary_choices) == 2;
    for (int i = 0; i < encoder->blocks; i++) {
        options.rotary = is_local(encoder, i) ? rotary.local : rotary.all;
        options.unnormed = i == 0 && !attn_config_bool(config, "first_norm", true);
        attn_nn_pushf(builder, "blks.block%d", i);
        attn_nn_encoder_block_init(&encoder->block[i], builder, &options);
        attn_nn_pop(builder);
    }
    attn__transformer_norm_build(&encoder->norm, builder, config, "encoder_norm", "norm");
}

attn_tensor *attn__transformer_encode(const attn__transformer_encoder *encoder, attn_tape *tape,
                                      const attn_tensor *tokens, const attn_tensor *lens, attn_named_list *weights)
{
    const attn__encoder_input input = {.tokens = tokens, .lens = lens};
    return attn__transformer_encode_input(encoder, tape, &input, &(attn__encoder_maps){.weights = weights});
}

/* *map gets the block's weights if it is not NULL. */
static attn_tensor *run_block(const attn__transformer_encoder *encoder, attn_tape *tape, int i, attn_tensor *x,
                              const attn__encoder_input *input, attn_tensor **map)
{
    attn_nn_mask mask = {.valid_lens = input->lens,
                         .fill = encoder->fill,
                         .window = is_local(encoder, i) ? encoder->local_window : 0,
                         .packed = input->packed};
    return attn_nn_encoder_block_forward(&encoder->block[i], tape, x, NULL, &mask, map);
}

attn_tensor *attn__transformer_encode_input(const attn__transformer_encoder *encoder, attn_tape *tape,
                                            const attn__encoder_input *input, const attn__encoder_maps *maps)
{
    attn_named_list *weights = maps ? maps->weights : NULL;
    attn_tensor *contacts = maps ? maps->contacts : NULL;
    attn_tensor *x = attn__transformer_front_encode(&encoder->front, tape, input);
    for (int i = 0; i < encoder->blocks; i++) {
        attn_tensor *map = NULL;
        attn__block_begin(tape, weights != NULL);
        x = run_block(encoder, tape, i, x, input, weights || contacts ? &map : NULL);
        if (x && map && contacts) {
            attn__contact_maps of_block = {
                .maps = map, .first = i * encoder->block[i].attention.heads, .batch_first = true};
            if (!attn__contacts_add(&maps->regression, tape, &of_block, maps->residues, contacts))
                x = NULL;
        }
        x = attn__block_end(tape, weights != NULL, x);
        attn__weights_add(weights, "encoder", i, map);
    }
    return attn__transformer_norm(&encoder->norm, tape, x);
}
