/* SPDX-License-Identifier: MIT
 *
 * Implements positions, whose channels are sines and cosines of decreasing frequency.
 */
#include "nn/check.h"

#include "base/context.h"
#include "tensor/number.h"
#include "tensor/tape_state.h"

#include <inttypes.h>
#include <math.h>

static double encode(attn_nn_position_kind kind, int64_t position, int64_t channel, int64_t dim)
{
    int64_t half = dim / 2, j = kind == ATTN_NN_POSITION_INTERLEAVED ? channel / 2 : channel % half;
    bool cosine = kind == ATTN_NN_POSITION_INTERLEAVED ? channel % 2 : channel >= half;
    double share = kind != ATTN_NN_POSITION_HALVES_T2T ? 2 * (double)j / (double)dim
                   : half > 1                          ? (double)j / (double)(half - 1)
                                                       : 0;
    double angle = (double)position / pow(10000, share);
    return cosine ? cos(angle) : sin(angle);
}

void attn_nn_positional_init_kind(attn_nn_positional *layer, attn_nn_builder *builder, attn_nn_position_kind kind,
                                  int64_t dim, int64_t max_len, double dropout)
{
    int64_t shape[2] = {max_len, dim};
    *layer = (attn_nn_positional){.dropout = dropout, .none = kind == ATTN_NN_POSITION_NONE};
    if (attn__check_choice(builder->context, "the kind of positions", (int)kind, ATTN_NN_POSITION_NONE))
        return;
    if ((kind == ATTN_NN_POSITION_HALVES || kind == ATTN_NN_POSITION_HALVES_T2T) && dim % 2 != 0) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT,
                   "positions in halves need an even number of channels, found %" PRId64, dim);
        return;
    }
    if (kind == ATTN_NN_POSITION_LEARNED) {
        attn_nn_initializer fill = {.start = ATTN_INIT_NORMAL, .scale = 0.02};
        layer->table = attn_nn_parameter(builder, "weight", 2, shape, fill);
    } else if (!layer->none) {
        layer->table = attn_nn_constant(builder, "P", 2, shape);
        for (int64_t i = 0; layer->table && i < max_len * dim; i++)
            attn__set_number(layer->table, i, encode(kind, i / dim, i % dim, dim));
    }
}

void attn_nn_positional_init(attn_nn_positional *layer, attn_nn_builder *builder, int64_t dim, int64_t max_len,
                             double dropout)
{
    attn_nn_positional_init_kind(layer, builder, ATTN_NN_POSITION_INTERLEAVED, dim, max_len, dropout);
}

static bool positions_fit(const attn_nn_positional *layer, attn_tape *tape, int64_t first, int64_t n)
{
    if (!layer->table)
        return layer->none;
    int64_t most = attn_tensor_length(layer->table, 0), row = first + layer->offset;
    if (first < 0 || n > most - row) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE,
                   "positional encoding: positions %" PRId64 " to %" PRId64 " requested, but max_len is %" PRId64, row,
                   row + n - 1, most);
        return false;
    }
    return true;
}

attn_tensor *attn_nn_positional_forward(const attn_nn_positional *layer, attn_tape *tape, attn_tensor *x, int64_t first)
{
    if (!attn__nn_has_rank(tape, x, 3, "positional encoding's input") ||
        !positions_fit(layer, tape, first, attn_tensor_length(x, 1)))
        return NULL;
    if (layer->none)
        return attn_dropout(tape, x, layer->dropout);
    if (!attn__nn_has_channels(tape, "positional encoding's input", x, 3, 2, attn_tensor_length(layer->table, 1)))
        return NULL;
    first += layer->offset;
    attn_tensor *rows = attn_slice(tape, layer->table, 0, first, first + attn_tensor_length(x, 1));
    return attn_dropout(tape, attn_add(tape, x, rows), layer->dropout);
}

attn_tensor *attn_nn_positional_embed(const attn_nn_positional *layer, const attn_nn_embedding *embedding,
                                      attn_tape *tape, const attn_tensor *ids, int64_t first)
{
    if (!attn__nn_has_rank(tape, ids, 2, "tokens") || !positions_fit(layer, tape, first, attn_tensor_length(ids, 1)))
        return NULL;
    attn_tensor *x = attn_embedding(tape, embedding->weight, ids, embedding->scale, layer->table,
                                    layer->table ? first + layer->offset : 0);
    return attn_dropout(tape, x, layer->dropout);
}
