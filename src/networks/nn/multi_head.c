/* SPDX-License-Identifier: MIT
 *
 * Implements multi-head attention. The projections do not separate the heads: the attention engine reads the channels
 * of each head by strides.
 */
#include "nn/check.h"
#include "nn/guided.h"

#include "base/context.h"
#include "nn/named.h"
#include "tensor/parts.h"
#include "tensor/tape_state.h"

static void project_init(attn_nn_linear *linear, attn_nn_builder *builder, const char *name, int64_t in, int64_t out,
                         bool bias)
{
    attn__nn_linear_named(linear, builder, name, in > 0 ? in : out, out, bias);
}

/* Registers the parameters that the score needs in addition to the projections. */
static void score_init(attn_nn_multi_head *layer, attn_nn_builder *builder)
{
    int64_t dim = layer->hidden / layer->heads;
    attn_nn_push(builder, "attention");
    if (layer->score == ATTN_NN_SCORE_ADDITIVE)
        attn_nn_additive_init(&layer->additive, builder, dim, dim, dim, 0);
    else if (layer->score == ATTN_NN_SCORE_BILINEAR)
        attn__nn_linear_named(&layer->m, builder, "M", dim, dim, false);
    attn_nn_pop(builder);
}

void attn_nn_multi_head_init(attn_nn_multi_head *layer, attn_nn_builder *builder,
                             const attn_nn_multi_head_options *options)
{
    int64_t hidden = options->hidden, heads = options->heads;
    *layer = (attn_nn_multi_head){.hidden = hidden,
                                  .heads = heads,
                                  .score = options->score,
                                  .plain = options->plain,
                                  .dropout = options->dropout};
    if (attn__check_choice(builder->context, "attn_nn_multi_head_options.score", (int)options->score,
                           ATTN_NN_SCORE_BILINEAR))
        return;
    if (heads < 1 || hidden < 1 || hidden % heads != 0) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT, "%s%s%lld heads do not divide %lld channels", builder->prefix,
                   builder->prefix[0] ? ": " : "", (long long)heads, (long long)hidden);
        return;
    }
    const bool plain = options->plain;
    project_init(&layer->w_q, builder, plain ? "query" : "W_q", options->query_size, hidden, options->bias);
    project_init(&layer->w_k, builder, plain ? "key" : "W_k", options->key_size, hidden, options->bias);
    project_init(&layer->w_v, builder, plain ? "value" : "W_v", options->value_size, hidden, options->bias);
    if (!plain)
        project_init(&layer->w_o, builder, "W_o", hidden, hidden, options->bias);
    score_init(layer, builder);
}

/* Multiplies x [B,T,D] by a weight [D/H,D/H] that all heads share. */
static attn_tensor *project_heads(const attn_nn_multi_head *layer, attn_tape *tape, attn_tensor *x,
                                  const attn_nn_linear *linear)
{
    int64_t shape[3] = {attn_tensor_length(x, 0), attn_tensor_length(x, 1), layer->hidden};
    int64_t apart[4] = {shape[0], shape[1], layer->heads, layer->hidden / layer->heads};
    attn_tensor *y = attn_nn_linear_forward(linear, tape, attn_reshape(tape, x, 4, apart));
    return attn_reshape(tape, y, 3, shape);
}

/* Prepares a score other than the dot product: multiplies the keys of each head by the score's weight. For the
 * additive score, the queries are multiplied too. */
static void set_score(const attn_nn_multi_head *layer, attn_tape *tape, attn_attention *a)
{
    if (layer->score == ATTN_NN_SCORE_BILINEAR) {
        a->k.tensor = project_heads(layer, tape, a->k.tensor, &layer->m);
        a->problem.scale = 1;
    } else if (layer->score == ATTN_NN_SCORE_ADDITIVE) {
        a->q.tensor = project_heads(layer, tape, a->q.tensor, &layer->additive.w_q);
        a->k.tensor = project_heads(layer, tape, a->k.tensor, &layer->additive.w_k);
        a->w = layer->additive.w_v;
        a->problem.score = ATTN_SCORE_ADDITIVE;
        for (int i = 0; i < a->problem.ndims; i++)
            a->problem.dims[i].w = a->problem.dims[i].role == ATTN_ROLE_CONTRACT;
    }
}

/* Limits the distance of a query from its keys. */
static void add_window(attn_problem *problem, int64_t window)
{
    int query = 0;
    while (problem->dims[query].role != ATTN_ROLE_QUERY)
        query++;
    problem->bands[problem->nbands++] = (attn_band){query, query + 1, -window, window};
}

/* Describes the attention of projected queries q [B,Tq,D] to the first `keys` of the `capacity` rows of k and v
 * [B,capacity,D]. */
static bool describe(const attn_nn_multi_head *layer, attn_tape *tape, attn_tensor *q, attn_tensor *k, attn_tensor *v,
                     int64_t keys, const attn_nn_mask *mask, attn_attention *a)
{
    int64_t batch = attn_tensor_length(q, 0), tq = attn_tensor_length(q, 1), capacity = attn_tensor_length(k, 1);
    const attn_nn_packed *packed = mask ? mask->packed : NULL;
    attn_heads heads = {.batch = packed ? attn_tensor_size(packed->offsets) - 1 : batch,
                        .heads = layer->heads,
                        .queries = packed ? packed->longest : tq,
                        .keys = packed ? packed->longest : keys,
                        .packed = packed != NULL,
                        .packed_queries = packed ? tq : 0,
                        .packed_keys = packed ? tq : 0,
                        .dim = layer->hidden / layer->heads,
                        .layout = ATTN_LAYOUT_BTHD,
                        .causal = mask ? mask->causal : ATTN_CAUSAL_NONE,
                        .lens_per = attn__nn_lens_per(mask),
                        .key_padding = mask && mask->keys};
    *a = (attn_attention){.q = {q, 0},
                          .k = {k, 0},
                          .v = {v, 0},
                          .lens = mask ? mask->valid_lens : NULL,
                          .mask = mask ? mask->keys : NULL,
                          .offsets = packed ? packed->offsets : NULL,
                          .rank = 3,
                          .shape = {batch, tq, layer->hidden},
                          .weights_rank = 4,
                          .weights_shape = {batch, layer->heads, tq, keys},
                          .dropout = layer->dropout};
    if (attn_problem_heads(&a->problem, &heads) != ATTN_OK) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE, "multi-head attention: %s", attn_context_error(NULL));
        return false;
    }
    /* Each batch item has room for `capacity` keys, of which fewer may be valid. The stride between batch items is
     * therefore that of `capacity` keys. */
    if (!packed)
        a->problem.dims[0].k = a->problem.dims[0].v = capacity * layer->hidden;
    if (mask && mask->window > 0)
        add_window(&a->problem, mask->window);
    a->problem.dtype = attn_tensor_dtype(q);
    a->problem.mask_fill = mask ? mask->fill : 0;
    set_score(layer, tape, a);
    return a->q.tensor && a->k.tensor;
}

static attn_tensor *project_out(const attn_nn_multi_head *layer, attn_tape *tape, attn_tensor *y)
{
    return layer->plain ? y : attn_nn_linear_forward(&layer->w_o, tape, y);
}

/* Computes the attention that describe() has set up, and applies the output projection. */
static attn_tensor *attend(const attn_nn_multi_head *layer, attn_tape *tape, attn_tensor *q, attn_tensor *k,
                           attn_tensor *v, int64_t keys, const attn_nn_mask *mask, attn_tensor **weights)
{
    attn_attention a;
    if (!describe(layer, tape, q, k, v, keys, mask, &a))
        return NULL;
    a.weights = weights;
    return project_out(layer, tape, attn_attend(tape, &a));
}

static attn_tensor *rotated(const attn_nn_multi_head *layer, attn_tape *tape, attn_tensor *x, const attn_nn_mask *mask)
{
    if (!layer->rotary || !x)
        return x;
    return attn_rotate(tape, x,
                       &(attn_rotary){.table = layer->rotary,
                                      .heads = layer->heads,
                                      .pairs = layer->rotary_pairs,
                                      .positions = mask && mask->packed ? mask->packed->positions : NULL});
}

attn_tensor *attn_nn_multi_head_forward(const attn_nn_multi_head *layer, attn_tape *tape, attn_tensor *queries,
                                        attn_tensor *keys, attn_tensor *values, const attn_nn_mask *mask,
                                        attn_tensor **weights)
{
    if (!attn__nn_attention_fits(tape, queries, keys, values, mask))
        return NULL;
    attn_tensor *q = attn_nn_linear_forward(&layer->w_q, tape, queries);
    attn_tensor *k = attn_nn_linear_forward(&layer->w_k, tape, keys);
    attn_tensor *v = attn_nn_linear_forward(&layer->w_v, tape, values);
    q = rotated(layer, tape, q, mask);
    k = rotated(layer, tape, k, mask);
    return q && k && v ? attend(layer, tape, q, k, v, attn_tensor_length(k, 1), mask, weights) : NULL;
}

attn_tensor *attn__nn_multi_head_guided(const attn_nn_multi_head *layer, attn_tape *tape, attn_tensor *queries,
                                        attn_tensor *keys, attn_tensor *values, const attn_nn_mask *mask,
                                        attn_tensor **weights)
{
    attn_attention a;
    if (!attn__nn_attention_fits(tape, queries, keys, values, mask))
        return NULL;
    attn_tensor *q = attn_nn_linear_forward(&layer->w_q, tape, queries);
    attn_tensor *k = attn_nn_linear_forward(&layer->w_k, tape, keys);
    attn_tensor *v = attn_nn_linear_forward(&layer->w_v, tape, values);
    if (!q || !k || !v || !describe(layer, tape, q, k, v, attn_tensor_length(k, 1), mask, &a))
        return NULL;
    attn_tensor *y = attn_attend(tape, &a);
    *weights = y ? attn__nn_weigh(tape, &a) : NULL;
    return *weights ? project_out(layer, tape, y) : NULL;
}

attn_tensor *attn_nn_multi_head_cached(const attn_nn_multi_head *layer, attn_tape *tape, attn_tensor *queries,
                                       const attn_nn_kv_cache *cache, const attn_nn_mask *mask)
{
    if (!attn__nn_attention_fits(tape, queries, cache->k, cache->v, mask))
        return NULL;
    attn_tensor *q = attn_nn_linear_forward(&layer->w_q, tape, queries);
    return q ? attend(layer, tape, q, cache->k, cache->v, cache->length, mask, NULL) : NULL;
}
