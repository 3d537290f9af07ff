/* SPDX-License-Identifier: MIT
 *
 * Positions as sines and cosines of falling frequency. */
#include "nn/check.h"

#include "base/context.h"
#include "tensor/number.h"

#include <inttypes.h>
#include <math.h>

static double encode(int64_t position, int64_t channel, int64_t dim)
{
    double angle = (double)position / pow(10000, (double)(channel - channel % 2) / (double)dim);
    return channel % 2 == 0 ? sin(angle) : cos(angle);
}

void attn_nn_positional_init(attn_nn_positional *layer, attn_nn_builder *builder, int64_t dim, int64_t max_len,
                             double dropout)
{
    layer->dropout = dropout;
    layer->table = attn_nn_constant(builder, "P", 2, (int64_t[]){max_len, dim});
    if (!layer->table) {
        return;
    }
    for (int64_t i = 0; i < max_len * dim; i++) {
        attn__set_number(layer->table, i, encode(i / dim, i % dim, dim));
    }
}

static bool positions_fit(const attn_nn_positional *layer, attn_tape *tape, int64_t first, int64_t n)
{
    if (!layer->table) {
        return false;
    }
    int64_t most = attn_tensor_dim(layer->table, 0);
    if (first < 0 || n > most - first) {
        attn__fail(attn_tape_context(tape), ATTN_SHAPE,
                   "positional encoding: positions %" PRId64 " to %" PRId64 " wanted, but max_len is %" PRId64, first,
                   first + n - 1, most);
        return false;
    }
    return true;
}

attn_tensor *attn_nn_positional_forward(const attn_nn_positional *layer, attn_tape *tape, attn_tensor *x, int64_t first)
{
    if (!attn__nn_has_rank(tape, x, 3, "positional encoding's input") ||
        !positions_fit(layer, tape, first, attn_tensor_dim(x, 1))) {
        return NULL;
    }
    attn_tensor *rows = attn_slice(tape, layer->table, 0, first, first + attn_tensor_dim(x, 1));
    return attn_dropout(tape, attn_add(tape, x, rows), layer->dropout);
}

attn_tensor *attn_nn_positional_embed(const attn_nn_positional *layer, const attn_nn_embedding *embedding,
                                      attn_tape *tape, const attn_tensor *ids, int64_t first)
{
    if (!attn__nn_has_rank(tape, ids, 2, "tokens") || !positions_fit(layer, tape, first, attn_tensor_dim(ids, 1))) {
        return NULL;
    }
    attn_tensor *x = attn_embedding(tape, embedding->weight, ids, embedding->scale, layer->table, first);
    return attn_dropout(tape, x, layer->dropout);
}
