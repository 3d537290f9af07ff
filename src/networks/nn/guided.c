/* SPDX-License-Identifier: MIT */
#include "nn/guided.h"

#include <string.h>

/* Returns the identity matrix [n,n]. */
static attn_tensor *unit_vectors(attn_tape *tape, attn_dtype dtype, int64_t n)
{
    attn_tensor *units = attn_tape_tensor(tape, dtype, 2, (int64_t[]){n, n}, NULL);
    void *data = units ? attn_tensor_data(units) : NULL;
    for (int64_t i = 0; data && i < n * n; i++) {
        double value = i % n == i / n;
        if (dtype == ATTN_F64)
            ((double *)data)[i] = value;
        else
            ((float *)data)[i] = (float)value;
    }
    return units;
}

attn_tensor *attn__nn_weigh(attn_tape *tape, const attn_attention *attention)
{
    attn_attention a = *attention;
    int64_t keys = a.weights_shape[a.weights_rank - 1];
    a.v = (attn_operand){unit_vectors(tape, attn_tensor_dtype(a.q.tensor), keys), 0};
    a.weights = NULL;
    a.dropout = 0;
    a.rank = a.weights_rank;
    memcpy(a.shape, a.weights_shape, sizeof a.shape);
    for (int i = 0; i < a.problem.ndims; i++) {
        attn_dim *dim = &a.problem.dims[i];
        bool key = dim->role == ATTN_ROLE_KEY, value = dim->role == ATTN_ROLE_VALUE;
        dim->n = value ? keys : dim->n;
        dim->v = key ? keys : value;
        dim->o = key ? 0 : value ? 1 : dim->weights;
    }
    return a.v.tensor ? attn_attend(tape, &a) : NULL;
}
