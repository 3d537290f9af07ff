/* SPDX-License-Identifier: MIT
 *
 * Implements the first layer of a network that consists only of attention (Ramachandran et al. 2019, section 3.2). A
 * single pixel has too little information for attention to find edges. Therefore a value also depends on the pixel's
 * position in its block: the matrix of the value's projection is a mixture of a few matrices, and each position has its
 * own mixture. */
#include "nn/check.h"

#include "nn/spatial.h"
#include "base/context.h"
#include "nn/named.h"
#include "tensor/tape_state.h"

#include <math.h>

void attn_nn_attention_stem_init(attn_nn_attention_stem *layer, attn_nn_builder *builder, int64_t in, int64_t out)
{
    const int64_t side = ATTN_NN_STEM_SIDE, mixed = ATTN_NN_STEM_MIXED;
    /* A score of the mixture's softmax is the product of a position's vector and a mixing vector. These initial
     * values give scores of about 1, so that all matrices have a share in each mixture. */
    attn_nn_initializer place = {.start = ATTN_INIT_NORMAL},
                        mix = {.start = ATTN_INIT_NORMAL, .scale = 1 / sqrt((double)out)};
    layer->rows = attn_nn_parameter(builder, "emb_a", 2, (int64_t[]){out, side}, place);
    layer->columns = attn_nn_parameter(builder, "emb_b", 2, (int64_t[]){out, side}, place);
    layer->mix = attn_nn_parameter(builder, "emb_mix", 2, (int64_t[]){mixed, out}, mix);
    attn__nn_pointwise_named(&layer->key, builder, "key_conv", in, out, false);
    attn__nn_pointwise_named(&layer->query, builder, "query_conv", in, out, false);
    attn_nn_push(builder, "value_conv");
    for (int m = 0; m < ATTN_NN_STEM_MIXED; m++) {
        const char name[2] = {(char)('0' + m), 0};
        attn__nn_pointwise_named(&layer->value[m], builder, name, in, out, false);
    }
    attn_nn_pop(builder);
}

/* Returns the mixture [16,mixed]. Its element p(a,b,m) is the share of matrix m at row a and column b of a block. */
static attn_tensor *mixture(const attn_nn_attention_stem *layer, attn_tape *tape)
{
    const int64_t side = ATTN_NN_STEM_SIDE, mixed = ATTN_NN_STEM_MIXED;
    attn_tensor *a = attn_matmul(tape, layer->rows, layer->mix, true, true); /* [side,mixed] */
    attn_tensor *b = attn_matmul(tape, layer->columns, layer->mix, true, true);
    if (!a || !b)
        return NULL;
    attn_tensor *sum = attn_add(tape, attn_reshape(tape, a, 3, (int64_t[]){side, 1, mixed}),
                                attn_reshape(tape, b, 3, (int64_t[]){1, side, mixed}));
    attn_tensor *p = attn_softmax(tape, sum, NULL, 0);
    return p ? attn_reshape(tape, p, 2, (int64_t[]){side * side, mixed}) : NULL;
}

/* Applies a 1 x 1 convolution to pixels x [n,16,in]. */
static attn_tensor *project(const attn_nn_conv *conv, attn_tape *tape, attn_tensor *x)
{
    if (!conv->weight)
        return NULL;
    int64_t shape[2] = {attn_tensor_length(conv->weight, 0), attn_tensor_length(conv->weight, 1)};
    return attn_linear(tape, x, attn_reshape(tape, conv->weight, 2, shape), NULL, ATTN_ACTIVATION_IDENTITY);
}

static attn_tensor *mixed_values(const attn_nn_attention_stem *layer, attn_tape *tape, attn_tensor *x)
{
    attn_tensor *p = mixture(layer, tape), *sum = NULL;
    for (int m = 0; p && m < ATTN_NN_STEM_MIXED; m++) {
        attn_tensor *part = attn_mul(tape, project(&layer->value[m], tape, x), attn_slice(tape, p, 1, m, m + 1));
        sum = m ? attn_add(tape, sum, part) : part;
    }
    return sum;
}

/* Cuts x [B,in,Y,X] into blocks of 4 x 4 pixels. Returns them as [n,16,in], where n is the number of blocks.
 * Incomplete blocks at the lower and right border are left out, as in pooling. */
static attn_tensor *blocks_of(attn_tape *tape, attn_tensor *x)
{
    const int64_t side = ATTN_NN_STEM_SIDE, *shape = attn_tensor_shape(x);
    int64_t in = shape[1], six[6] = {shape[0], in, shape[2] / side, side, shape[3] / side, side};
    int64_t three[3] = {six[0] * six[2] * six[4], side * side, in};
    x = attn_slice(tape, attn_slice(tape, x, 2, 0, six[2] * side), 3, 0, six[4] * side);
    x = x ? attn_permute(tape, attn_reshape(tape, x, 6, six), (int[]){0, 2, 4, 3, 5, 1}) : NULL;
    return x ? attn_reshape(tape, x, 3, three) : NULL;
}

attn_tensor *attn_nn_attention_stem_forward(const attn_nn_attention_stem *layer, attn_tape *tape, attn_tensor *x)
{
    const int64_t side = ATTN_NN_STEM_SIDE;
    if (!attn__nn_has_rank(tape, x, 4, "attention stem: x"))
        return NULL;
    int64_t batch = attn_tensor_length(x, 0), rows = attn_tensor_length(x, 2), cols = attn_tensor_length(x, 3);
    if (rows < side || cols < side) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE,
                   "attention stem: expected pictures of at least %lld x %lld, found %lld x %lld", (long long)side,
                   (long long)side, (long long)rows, (long long)cols);
        return NULL;
    }
    attn_tensor *blocks = blocks_of(tape, x);
    attn_tensor *q = project(&layer->query, tape, blocks), *k = project(&layer->key, tape, blocks);
    attn_tensor *v = mixed_values(layer, tape, blocks);
    /* All scores are stored, because tiles of scores would save nothing: a block has only 16 keys, fewer than it has
     * channels. */
    attn_tensor *p = attn_softmax(tape, attn_matmul(tape, q, k, false, true), NULL, 0);
    attn_tensor *y = attn_matmul(tape, p, v, false, false);
    if (!y)
        return NULL;
    int64_t four[4] = {batch, (rows / side) * (cols / side), side * side, attn_tensor_length(y, 2)};
    return attn_permute(tape, attn_reshape(tape, y, 4, four), (int[]){0, 3, 1, 2});
}
