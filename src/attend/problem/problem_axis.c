/* SPDX-License-Identifier: MIT
 * Attention along one axis of an array as a table of dimensions. */
#include "attn/attn.h"

static bool is_sound(const attn_axis *a)
{
    if (a->rank < 2 || a->rank > 8 || a->axis < 0 || a->axis >= a->rank || a->channel_axis < 0 ||
        a->channel_axis >= a->rank || a->axis == a->channel_axis || (unsigned)a->causal > ATTN_CAUSAL_BOTTOM_RIGHT)
        return false;
    int64_t elements = 1;
    for (int i = 0; i < a->rank; i++) {
        if (a->shape[i] < 0 || __builtin_mul_overflow(elements, a->shape[i] ? a->shape[i] : 1, &elements))
            return false;
    }
    return a->heads > 0;
}

static void add_moving(attn_problem *p, attn_role role, int64_t n, int64_t stride)
{
    attn_dim dim = {.role = role, .n = n};
    if (role == ATTN_ROLE_BATCH || role == ATTN_ROLE_QUERY)
        dim.q = dim.o = stride;
    if (role == ATTN_ROLE_BATCH || role == ATTN_ROLE_KEY)
        dim.k = dim.v = stride;
    if (role == ATTN_ROLE_CONTRACT)
        dim.q = dim.k = stride;
    if (role == ATTN_ROLE_VALUE)
        dim.v = dim.o = stride;
    p->dims[p->ndims++] = dim;
}

/* lse and weights are contiguous in the order of the dims: BATCH dims, query, key. */
static void number_rows(attn_problem *p)
{
    int64_t lse = 1, weights = 1;
    for (int i = p->ndims - 1; i >= 0; i--) {
        attn_dim *dim = &p->dims[i];
        if (dim->role > ATTN_ROLE_KEY)
            continue;
        dim->weights = weights;
        weights *= dim->n;
        if (dim->role == ATTN_ROLE_KEY)
            continue;
        dim->lse = lse;
        lse *= dim->n;
    }
}

attn_status attn_problem_axis(attn_problem *problem, const attn_axis *axis)
{
    *problem = (attn_problem){0};
    if (!is_sound(axis))
        return ATTN_ERROR_ARGUMENT;
    if (axis->shape[axis->channel_axis] % axis->heads)
        return ATTN_ERROR_SHAPE;
    int64_t stride[8], next = 1;
    for (int i = axis->rank - 1; i >= 0; i--) {
        stride[i] = next;
        next *= axis->shape[i];
    }
    int64_t n = axis->shape[axis->axis], channel = stride[axis->channel_axis];
    int64_t dim = axis->shape[axis->channel_axis] / axis->heads;
    for (int i = 0; i < axis->rank; i++)
        if (i != axis->axis && i != axis->channel_axis)
            add_moving(problem, ATTN_ROLE_BATCH, axis->shape[i], stride[i]);
    add_moving(problem, ATTN_ROLE_BATCH, axis->heads, dim * channel);
    int query = problem->ndims;
    add_moving(problem, ATTN_ROLE_QUERY, n, stride[axis->axis]);
    add_moving(problem, ATTN_ROLE_KEY, n, stride[axis->axis]);
    add_moving(problem, ATTN_ROLE_CONTRACT, dim, channel);
    add_moving(problem, ATTN_ROLE_VALUE, dim, channel);
    number_rows(problem);
    if (axis->causal != ATTN_CAUSAL_NONE) /* as many queries as keys: both alignments are one */
        problem->bands[problem->nbands++] = (attn_band){query, query + 1, INT64_MIN, 0};
    return ATTN_OK;
}
