/* SPDX-License-Identifier: MIT
 *
 * Implements additive attention. The attention engine adds each query and key, applies tanh, and sums over the
 * channels. An array over queries, keys and channels is never stored.
 */
#include "nn/check.h"
#include "nn/guided.h"
#include "nn/named.h"
#include "tensor/tensor.h"

#include "base/context.h"

void attn_nn_additive_init(attn_nn_additive *layer, attn_nn_builder *builder, int64_t query_size, int64_t key_size,
                           int64_t hidden, double dropout)
{
    attn_nn_linear w_v;
    layer->dropout = dropout;
    attn__nn_linear_named(&layer->w_k, builder, "W_k", key_size, hidden, false);
    attn__nn_linear_named(&layer->w_q, builder, "W_q", query_size, hidden, false);
    attn__nn_linear_named(&w_v, builder, "w_v", hidden, 1, false);
    layer->w_v = w_v.weight;
    if (layer->w_v) {
        /* not marked as the weight of a linear layer, because the attention engine reads this weight as a vector */
        layer->w_v->linear = false;
    }
}

attn_tensor *attn_nn_additive_forward(const attn_nn_additive *layer, attn_tape *tape, attn_tensor *queries,
                                      attn_tensor *keys, attn_tensor *values, const attn_nn_mask *mask,
                                      attn_tensor **weights)
{
    if (!attn__nn_attention_fits(tape, queries, keys, values, mask))
        return NULL;
    attn_tensor *projected = attn_nn_linear_forward(&layer->w_k, tape, keys);
    return attn_nn_additive_attend(layer, tape, queries, projected, values, false, mask, weights);
}

typedef struct sizes {
    int64_t batch, queries, keys, hidden, value;
    bool time_major;
    int lens_per;
} sizes;

static void describe(attn_problem *problem, const sizes *s)
{
    int64_t key_step = s->time_major ? s->batch : 1, batch_step = s->time_major ? 1 : s->keys;
    *problem = (attn_problem){.score = ATTN_SCORE_ADDITIVE, .ndims = 5, .lens_dim = 2};
    problem->dims[0] = (attn_dim){.role = ATTN_ROLE_BATCH,
                                  .n = s->batch,
                                  .q = s->queries * s->hidden,
                                  .k = batch_step * s->hidden,
                                  .v = batch_step * s->value,
                                  .o = s->queries * s->value,
                                  .lens = s->lens_per == 0   ? 0
                                          : s->lens_per == 1 ? 1
                                                             : s->queries,
                                  .lse = s->queries,
                                  .weights = s->queries * s->keys};
    problem->dims[1] = (attn_dim){.role = ATTN_ROLE_QUERY,
                                  .n = s->queries,
                                  .q = s->hidden,
                                  .o = s->value,
                                  .lens = s->lens_per == 2,
                                  .lse = 1,
                                  .weights = s->keys};
    problem->dims[2] = (attn_dim){
        .role = ATTN_ROLE_KEY, .n = s->keys, .k = key_step * s->hidden, .v = key_step * s->value, .weights = 1};
    problem->dims[3] = (attn_dim){.role = ATTN_ROLE_CONTRACT, .n = s->hidden, .q = 1, .k = 1, .w = 1};
    problem->dims[4] = (attn_dim){.role = ATTN_ROLE_VALUE, .n = s->value, .v = 1, .o = 1};
    problem->flags = s->lens_per ? ATTN_WITH_LENS : 0;
}

/* Fills *a with the attention of the queries to keys that are already projected. Returns false if the shapes do not
 * fit. */
static bool prepare(const attn_nn_additive *layer, attn_tape *tape, attn_tensor *queries, attn_tensor *projected,
                    attn_tensor *values, bool time_major, const attn_nn_mask *mask, attn_attention *a)
{
    attn_tensor *q = attn_nn_linear_forward(&layer->w_q, tape, queries);
    if (!q || !layer->w_v || !attn__nn_has_rank(tape, q, 3, "queries") ||
        !attn__nn_has_rank(tape, projected, 3, "keys") || !attn__nn_has_rank(tape, values, 3, "values"))
        return false;
    sizes s = {.batch = attn_tensor_length(q, 0),
               .queries = attn_tensor_length(q, 1),
               .hidden = attn_tensor_length(q, 2),
               .keys = attn_tensor_length(projected, time_major ? 0 : 1),
               .value = attn_tensor_length(values, 2),
               .time_major = time_major,
               .lens_per = attn__nn_lens_per(mask)};
    if (!attn__nn_lens_fit(tape, mask, s.batch, s.queries))
        return false;
    if (mask && mask->causal != ATTN_CAUSAL_NONE) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_UNSUPPORTED,
                   "additive attention supports lengths, but not a causal mask");
        return false;
    }
    *a = (attn_attention){.q = {q, 0},
                          .k = {projected, 0},
                          .v = {values, 0},
                          .w = layer->w_v,
                          .lens = mask ? mask->valid_lens : NULL,
                          .rank = 3,
                          .shape = {s.batch, s.queries, s.value},
                          .weights_rank = 3,
                          .weights_shape = {s.batch, s.queries, s.keys},
                          .dropout = layer->dropout};
    describe(&a->problem, &s);
    a->problem.dtype = attn_tensor_dtype(q);
    a->problem.mask_fill = mask ? mask->fill : 0;
    return true;
}

attn_tensor *attn_nn_additive_attend(const attn_nn_additive *layer, attn_tape *tape, attn_tensor *queries,
                                     attn_tensor *projected, attn_tensor *values, bool time_major,
                                     const attn_nn_mask *mask, attn_tensor **weights)
{
    attn_attention a;
    if (!prepare(layer, tape, queries, projected, values, time_major, mask, &a))
        return NULL;
    a.weights = weights;
    return attn_attend(tape, &a);
}

attn_tensor *attn__nn_additive_guided(const attn_nn_additive *layer, attn_tape *tape, attn_tensor *queries,
                                      attn_tensor *projected, attn_tensor *values, bool time_major,
                                      const attn_nn_mask *mask, attn_tensor **weights)
{
    attn_attention a;
    if (!prepare(layer, tape, queries, projected, values, time_major, mask, &a))
        return NULL;
    attn_tensor *y = attn_attend(tape, &a);
    *weights = y ? attn__nn_weigh(tape, &a) : NULL;
    return *weights ? y : NULL;
}
