/* SPDX-License-Identifier: MIT
 *
 * Implements attention without parameters: the masked softmax and the scaled dot product.
 */
#include "nn/dot_product.h"

#include "nn/check.h"

#include "base/context.h"
#include "tensor/tape_state.h"

attn_tensor *attn_nn_masked_softmax(attn_tape *tape, attn_tensor *x, const attn_nn_mask *mask)
{
    if (!attn__nn_has_rank(tape, x, 3, "masked softmax's input") ||
        !attn__nn_lens_fit(tape, mask, attn_tensor_length(x, 0), attn_tensor_length(x, 1)))
        return NULL;
    return attn_softmax(tape, x, mask ? mask->valid_lens : NULL, mask ? mask->fill : 0);
}

attn_tensor *attn_nn_dot_product(attn_tape *tape, attn_tensor *queries, attn_tensor *keys, attn_tensor *values,
                                 const attn_nn_mask *mask, double dropout, attn_tensor **weights)
{
    return attn__nn_dot_product_scaled(tape, queries, keys, values, mask, 0, dropout, weights);
}

attn_tensor *attn__nn_dot_product_scaled(attn_tape *tape, attn_tensor *queries, attn_tensor *keys, attn_tensor *values,
                                         const attn_nn_mask *mask, double scale, double dropout, attn_tensor **weights)
{
    if (!attn__nn_attention_fits(tape, queries, keys, values, mask))
        return NULL;
    int64_t batch = attn_tensor_length(queries, 0), tq = attn_tensor_length(queries, 1),
            tk = attn_tensor_length(keys, 1);
    int64_t dim = attn_tensor_length(queries, 2), dim_value = attn_tensor_length(values, 2);
    if (dim != attn_tensor_length(keys, 2)) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE,
                   "queries have %lld channels, keys %lld; they must be equal", (long long)dim,
                   (long long)attn_tensor_length(keys, 2));
        return NULL;
    }
    attn_heads heads = {.batch = batch,
                        .heads = 1,
                        .queries = tq,
                        .keys = tk,
                        .dim = dim,
                        .dim_value = dim_value,
                        .causal = mask ? mask->causal : ATTN_CAUSAL_NONE,
                        .lens_per = attn__nn_lens_per(mask)};
    attn_attention a = {.q = {queries, 0},
                        .k = {keys, 0},
                        .v = {values, 0},
                        .lens = mask ? mask->valid_lens : NULL,
                        .rank = 3,
                        .shape = {batch, tq, dim_value},
                        .weights = weights,
                        .weights_rank = 3,
                        .weights_shape = {batch, tq, tk},
                        .dropout = dropout};
    if (attn_problem_heads(&a.problem, &heads) != ATTN_OK) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE, "dot-product attention: %s", attn_context_error(NULL));
        return NULL;
    }
    a.problem.scale = scale;
    a.problem.dtype = attn_tensor_dtype(queries);
    a.problem.mask_fill = mask ? mask->fill : 0;
    return attn_attend(tape, &a);
}
