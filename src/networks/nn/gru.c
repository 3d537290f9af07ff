/* SPDX-License-Identifier: MIT
 *
 * Implements stacked layers of gated recurrent units (Cho et al. 2014, arXiv:1406.1078).
 */
#include "nn/check.h"

#include "base/context.h"
#include "tensor/tensor.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static attn_tensor *named(attn_nn_builder *builder, const char *kind, int l, int rank, int64_t rows, int64_t cols,
                          attn_nn_initializer fill)
{
    char name[32];
    snprintf(name, sizeof name, "%s_l%d", kind, l);
    return attn_nn_parameter(builder, name, rank, (int64_t[]){rows, cols}, fill);
}

void attn_nn_gru_init(attn_nn_gru *layer, attn_nn_builder *builder, int64_t in, int64_t hidden, int layers,
                      double dropout)
{
    bool torch = builder->policy == ATTN_POLICY_TORCH;
    attn_nn_initializer weight = {.start = ATTN_INIT_XAVIER_UNIFORM, .fan_out = torch ? 0 : (double)hidden};
    attn_nn_initializer bias = {.start = torch ? ATTN_INIT_UNIFORM : ATTN_INIT_ZEROS,
                                .scale = 1 / sqrt(fmax((double)hidden, 1))};
    *layer = (attn_nn_gru){.layers = layers, .hidden = hidden, .dropout = dropout};
    if (layers < 1 || layers > ATTN_NN_MAX_GRU_LAYERS) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT, "%sfound %d recurrent layers; 1 to %d are supported",
                   builder->prefix, layers, ATTN_NN_MAX_GRU_LAYERS);
        layer->layers = 0;
        return;
    }
    for (int l = 0; l < layers; l++) {
        layer->weight_ih[l] = named(builder, "weight_ih", l, 2, 3 * hidden, l == 0 ? in : hidden, weight);
        layer->weight_hh[l] = named(builder, "weight_hh", l, 2, 3 * hidden, hidden, weight);
        layer->bias_ih[l] = named(builder, "bias_ih", l, 1, 3 * hidden, 0, bias);
        layer->bias_hh[l] = named(builder, "bias_hh", l, 1, 3 * hidden, 0, bias);
    }
}

/* Returns for each sequence the index of its last row among the rows of the states [T*B,H]. */
static attn_tensor *last_rows(attn_tape *tape, const attn_tensor *lens, int64_t steps, int64_t batch)
{
    attn_tensor *rows = attn_tape_tensor(tape, ATTN_I32, 1, &batch, NULL);
    if (!rows)
        return NULL;
    if (steps * batch > INT32_MAX) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE,
                   "%" PRId64 " steps of %" PRId64 " sequences are too many: at most %d states are supported", steps,
                   batch, INT32_MAX);
        return NULL;
    }
    const int32_t *length = attn_tensor_data(lens);
    int32_t *row = attn_tensor_data(rows);
    for (int64_t b = 0; b < batch; b++) {
        int64_t n = length[b] < 1 ? 1 : length[b] > steps ? steps : length[b];
        row[b] = (int32_t)((n - 1) * batch + b);
    }
    return rows;
}

/* Returns the final state [B,H] of a layer. `states` [T,B,H] holds the states of all steps. `rows` holds the index
 * of each sequence's last row. If `rows` is NULL, the state of the last step is returned. */
static attn_tensor *last_state(attn_tape *tape, attn_tensor *states, attn_tensor *rows)
{
    if (!states)
        return NULL;
    int64_t steps = attn_tensor_length(states, 0), hidden = attn_tensor_length(states, 2);
    if (rows)
        return attn_index_select(tape, attn_reshape(tape, states, 2, (int64_t[]){-1, hidden}), rows);
    attn_tensor *last = steps == 1 ? states : attn_slice(tape, states, 0, steps - 1, steps);
    return attn_reshape(tape, last, 2, (int64_t[]){-1, hidden});
}

attn_tensor *attn_nn_gru_forward(const attn_nn_gru *layer, attn_tape *tape, attn_tensor *x, attn_tensor **state,
                                 const attn_tensor *lens)
{
    if (!attn__nn_has_rank(tape, x, 3, "recurrent layer's input"))
        return NULL;
    int64_t steps = attn_tensor_length(x, 0), batch = attn_tensor_length(x, 1);
    if (steps < 1) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE,
                   "recurrent layer: the input must have at least one step, not 0");
        return NULL;
    }
    if (!attn__nn_lens_fit(tape, &(attn_nn_mask){.valid_lens = lens}, batch, 0))
        return NULL;
    attn_tensor *rows = lens && state ? last_rows(tape, lens, steps, batch) : NULL;
    if (lens && state && !rows)
        return NULL;
    for (int l = 0; l < layer->layers; l++) {
        tape->examples = 1; /* tells dropout that axis 1 is the batch axis: the axes are time, batch and channels */
        x = l > 0 ? attn_dropout(tape, x, layer->dropout) : x;
        tape->examples = 0;
        x = attn_gru(tape, x, state ? state[l] : NULL, layer->weight_ih[l], layer->weight_hh[l], layer->bias_ih[l],
                     layer->bias_hh[l]);
        if (state)
            state[l] = last_state(tape, x, rows);
    }
    return x;
}
