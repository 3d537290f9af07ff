/* SPDX-License-Identifier: MIT
 *
 * Implements position-sensitive axial attention. A score has three parts: query times key, query times position, and
 * key times position. Each part has its own batch norm. In training, a batch norm needs the statistics of all scores,
 * so the array of scores is stored. The array is small, because a line is at most a quarter of a picture's side. */
#include "nn/check.h"

#include "nn/spatial.h"
#include "base/context.h"
#include "nn/named.h"
#include "tensor/number.h"
#include "tensor/tape_state.h"

#include <math.h>

/* Fills the original's buffer flatten_index. For each pair of a query and a key, it holds the column query - key +
 * length - 1 of the table of relative positions. The index of a pair is [query, key], as in the original's code,
 * although the names in that code suggest the reverse. */
static void index_init(attn_nn_builder *builder, int64_t length)
{
    int64_t n = length * length;
    attn_tensor *index =
        attn_nn_buffer(builder, "flatten_index", 1, &n, (attn_nn_initializer){.start = ATTN_INIT_ZEROS});
    for (int64_t i = 0; index && i < n; i++) {
        int64_t column = i / length - i % length + length - 1;
        attn__set_number(index, i, (double)column);
    }
}

void attn_nn_position_sensitive_attention_init(attn_nn_position_sensitive_attention *layer, attn_nn_builder *builder,
                                               int64_t in, int64_t out, int64_t groups, int64_t length, int axis)
{
    *layer = (attn_nn_position_sensitive_attention){.groups = groups, .length = length, .axis = axis};
    if (groups < 1 || in < 1 || out < 1 || out % (2 * groups) != 0) {
        attn__fail(
            builder->context, ATTN_ERROR_ARGUMENT,
            "%sposition-sensitive attention: found %lld input channels, and %lld output channels in %lld groups; "
            "each group needs an even number of output channels",
            builder->prefix, (long long)in, (long long)out, (long long)groups);
        return;
    }
    if (length < 1) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT,
                   "%sposition-sensitive attention: the length is %lld; it must be at least 1", builder->prefix,
                   (long long)length);
        return;
    }
    if (axis != 2 && axis != 3) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT,
                   "%sposition-sensitive attention: the axis is %d; it must be 2 or 3", builder->prefix, axis);
        return;
    }
    int64_t each = out / groups;
    attn__nn_conv_named(&layer->qkv, builder, "qkv_transform",
                        &(attn_nn_conv_options){.spatial = 1,
                                                .in_channels = in,
                                                .out_channels = 2 * out,
                                                .fill = {.start = ATTN_INIT_NORMAL, .scale = 1 / sqrt((double)in)}});
    attn__nn_batch_norm_named(&layer->norm_qkv, builder, "bn_qkv", 2 * out, false);
    attn__nn_batch_norm_named(&layer->norm_similarity, builder, "bn_similarity", 3 * groups, false);
    attn__nn_batch_norm_named(&layer->norm_output, builder, "bn_output", 2 * out, false);
    layer->relative =
        attn_nn_parameter(builder, "relative", 2, (int64_t[]){2 * each, 2 * length - 1},
                          (attn_nn_initializer){.start = ATTN_INIT_NORMAL, .scale = 1 / sqrt((double)each)});
    index_init(builder, length);
}

/* Returns the table's column for each pair of a query and a key. The shape is [query,key,2*each], where `each` is
 * the number of channels of a group. */
static attn_tensor *pairs(const attn_nn_position_sensitive_attention *layer, attn_tape *tape)
{
    int64_t n = layer->length;
    attn_tensor *index = attn_tape_tensor(tape, ATTN_I32, 2, (int64_t[]){n, n}, NULL);
    for (int64_t i = 0; index && i < n * n; i++)
        ((int32_t *)attn_tensor_data(index))[i] = (int32_t)(i / n - i % n + n - 1);
    attn_tensor *rows = attn_permute(tape, layer->relative, (int[]){1, 0});
    return index && rows ? attn_index_select(tape, rows, index) : NULL;
}

/* Multiplies x [BG,c,L] by e [L,M,c], with one matrix for each of the L positions. Returns [L,BG,M]. BG is the batch
 * times the groups. */
static attn_tensor *each_position(attn_tape *tape, attn_tensor *x, attn_tensor *e)
{
    return attn_matmul(tape, attn_permute(tape, x, (int[]){2, 0, 1}), e, false, true);
}

/* Returns the weights [BG,query,key]. A score is the sum of its three parts after their norms. */
static attn_tensor *similarity(const attn_nn_position_sensitive_attention *layer, attn_tape *tape, attn_tensor *q,
                               attn_tensor *k, attn_tensor *q_pairs, attn_tensor *k_pairs)
{
    int64_t n = layer->length, g = layer->groups, four[4] = {-1, g, n, n}, three[3] = {-1, n, n};
    attn_tensor *qk = attn_matmul(tape, q, k, true, false);
    attn_tensor *qr = attn_permute(tape, each_position(tape, q, q_pairs), (int[]){1, 0, 2});
    /* For a key, the first index of the table is the key's own position, and the second index is the query's
     * position. */
    attn_tensor *kr = attn_permute(tape, each_position(tape, k, k_pairs), (int[]){1, 2, 0});
    if (!qk || !qr || !kr)
        return NULL;
    attn_tensor *parts[3] = {attn_reshape(tape, qk, 4, four), attn_reshape(tape, qr, 4, four),
                             attn_reshape(tape, kr, 4, four)};
    attn_tensor *all = attn_nn_batch_norm_forward(&layer->norm_similarity, tape, attn_concat(tape, parts, 3, 1));
    for (int i = 0; i < 3; i++)
        parts[i] = attn_slice(tape, all, 1, i * g, (i + 1) * g);
    attn_tensor *sum = attn_add(tape, attn_add(tape, parts[0], parts[1]), parts[2]);
    return attn_softmax(tape, sum ? attn_reshape(tape, sum, 3, three) : NULL, NULL, 0);
}

/* Applies attention to lines of length L. Takes x [B,in,L] and returns [B,out,L]. */
static attn_tensor *along_lines(const attn_nn_position_sensitive_attention *layer, attn_tape *tape, attn_tensor *x,
                                attn_tensor **weights)
{
    attn_tensor *qkv = attn_nn_batch_norm_forward(&layer->norm_qkv, tape, attn_nn_conv_forward(&layer->qkv, tape, x));
    attn_tensor *e = pairs(layer, tape);
    if (!qkv || !e)
        return NULL;
    int64_t batch = attn_tensor_length(qkv, 0), out = attn_tensor_length(qkv, 1) / 2, n = layer->length;
    int64_t each = out / layer->groups, half = each / 2;
    qkv = attn_reshape(tape, qkv, 3, (int64_t[]){batch * layer->groups, 2 * each, n});
    attn_tensor *q = attn_slice(tape, qkv, 1, 0, half), *k = attn_slice(tape, qkv, 1, half, each);
    attn_tensor *v = attn_slice(tape, qkv, 1, each, 2 * each);
    attn_tensor *p = similarity(layer, tape, q, k, attn_slice(tape, e, 2, 0, half), attn_slice(tape, e, 2, half, each));
    if (weights)
        *weights = p;
    /* sv: [BG,each,query], where BG is the batch times the groups */
    attn_tensor *sv = attn_matmul(tape, v, p, false, true);
    attn_tensor *v_pairs = attn_slice(tape, e, 2, each, 2 * each);
    attn_tensor *sve = p ? attn_matmul(tape, attn_permute(tape, p, (int[]){1, 0, 2}), v_pairs, false, false) : NULL;
    sve = sve ? attn_permute(tape, sve, (int[]){1, 2, 0}) : NULL;
    if (!sv || !sve)
        return NULL;
    /* The norm has 2 channels for each output channel c: channel 2c is computed from the values, and channel 2c + 1
     * from the positions. */
    int64_t apart[4] = {batch, out, 1, n}, pair[4] = {batch, out, 2, n}, flat[3] = {batch, 2 * out, n};
    attn_tensor *both[2] = {attn_reshape(tape, sv, 4, apart), attn_reshape(tape, sve, 4, apart)};
    attn_tensor *y = attn_reshape(tape, attn_concat(tape, both, 2, 2), 3, flat);
    y = attn_nn_batch_norm_forward(&layer->norm_output, tape, y);
    return y ? attn_sum(tape, attn_reshape(tape, y, 4, pair), 2) : NULL;
}

attn_tensor *attn_nn_position_sensitive_attention_forward(const attn_nn_position_sensitive_attention *layer,
                                                          attn_tape *tape, attn_tensor *x, attn_tensor **weights)
{
    if (!attn__nn_has_rank(tape, x, 4, "position-sensitive attention: x"))
        return NULL;
    bool across = layer->axis == 3;
    if (attn_tensor_length(x, layer->axis) != layer->length) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE,
                   "position-sensitive attention: axis %d of x has length %lld, but the table of positions is for %lld",
                   layer->axis, (long long)attn_tensor_length(x, layer->axis), (long long)layer->length);
        return NULL;
    }
    attn_tensor *lines = attn_permute(tape, x, across ? (int[]){0, 2, 1, 3} : (int[]){0, 3, 1, 2});
    if (!lines)
        return NULL;
    int64_t n = attn_tensor_length(lines, 0), m = attn_tensor_length(lines, 1), length = layer->length;
    lines = attn_reshape(tape, lines, 3, (int64_t[]){n * m, attn_tensor_length(x, 1), length});
    attn_tensor *y = along_lines(layer, tape, lines, weights);
    if (!y)
        return NULL;
    if (weights)
        *weights = attn_reshape(tape, *weights, 5, (int64_t[]){n, m, layer->groups, length, length});
    y = attn_reshape(tape, y, 4, (int64_t[]){n, m, attn_tensor_length(y, 1), length});
    return attn_permute(tape, y, across ? (int[]){0, 2, 1, 3} : (int[]){0, 2, 3, 1});
}
