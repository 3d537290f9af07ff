/* SPDX-License-Identifier: MIT */
#include "support/tensors.h"

#include "base/rng.h"
#include "attn/tensor.h"

#include <math.h>
#include <stdlib.h>

attn_context *test_context(void)
{
    attn_context *context = NULL;
    if (attn_context_create(&context, &(attn_context_options){.threads = 2}) != ATTN_OK)
        abort();
    return context;
}

double test_at(const attn_tensor *x, int64_t i)
{
    const void *data = attn_tensor_data(x);
    switch (attn_tensor_dtype(x)) {
    case ATTN_F64:
        return ((const double *)data)[i];
    case ATTN_I32:
        return ((const int32_t *)data)[i];
    case ATTN_I64:
        return (double)((const int64_t *)data)[i];
    case ATTN_F16:
    case ATTN_BF16:
        return ((const uint16_t *)data)[i];
    case ATTN_F32:
        return (double)((const float *)data)[i];
    default:
        return ((const uint8_t *)data)[i];
    }
}

void test_set(attn_tensor *x, int64_t i, double value)
{
    void *data = attn_tensor_data(x);
    if (attn_tensor_dtype(x) == ATTN_F64)
        ((double *)data)[i] = value;
    else
        ((float *)data)[i] = (float)value;
}

attn_tensor *test_random(attn_tape *tape, attn_dtype dtype, int rank, const int64_t *shape, uint64_t seed)
{
    attn__rng rng = {.seed = seed};
    attn_tensor *x = attn_tape_tensor(tape, dtype, rank, shape, NULL);
    for (int64_t i = 0; x && i < attn_tensor_size(x); i++)
        test_set(x, i, attn__rng_normal(&rng));
    return x;
}

attn_tensor *test_ids(attn_tape *tape, int rank, const int64_t *shape, int64_t n, uint64_t seed)
{
    attn__rng rng = {.seed = seed};
    attn_tensor *x = attn_tape_tensor(tape, ATTN_I32, rank, shape, NULL);
    for (int64_t i = 0; x && i < attn_tensor_size(x); i++)
        ((int32_t *)attn_tensor_data(x))[i] = (int32_t)attn__rng_below(&rng, (uint64_t)n);
    return x;
}

attn_tensor *test_lens(attn_tape *tape, int64_t n, const int32_t *lens)
{
    return attn_tape_tensor(tape, ATTN_I32, 1, &n, lens);
}

static int same_shape(const attn_tensor *a, const attn_tensor *b)
{
    int same = attn_tensor_rank(a) == attn_tensor_rank(b);
    for (int i = 0; same && i < attn_tensor_rank(a); i++)
        same = attn_tensor_length(a, i) == attn_tensor_length(b, i);
    return same;
}

double test_distance(const attn_tensor *a, const attn_tensor *b)
{
    double most = 0, scale = 0;
    if (!a || !b || !same_shape(a, b))
        return INFINITY;
    for (int64_t i = 0; i < attn_tensor_size(a); i++) {
        double difference = fabs(test_at(a, i) - test_at(b, i));
        most = difference > most || isnan(difference) ? difference : most;
        scale = fmax(scale, fabs(test_at(b, i)));
    }
    return most / fmax(scale, 1e-300);
}
