/* SPDX-License-Identifier: MIT
 * The solver of last resort: everything that attn.h describes, in float64 inside, one pair at a time. */
#include "attend/solve/reference.h"

static const char *refuse(const attn__canonical *canonical)
{
    (void)canonical;
    return NULL;
}

/* Scalar float64 code with a gather for each key: about a hundred times what the machine could do. */
static double cost(const attn__canonical *canonical)
{
    double pairs = (double)canonical->batch.size * (double)canonical->query.size * (double)canonical->key.size;
    return 100 * pairs * (8 + (double)canonical->contract.size + (double)canonical->value.size);
}

static attn_status plan(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe)
{
    (void)context;
    recipe->workspace = attn__size_mul(attn__pair_size(canonical), (size_t)canonical->threads);
    if (canonical->backward)
        recipe->workspace = attn__size_add(recipe->workspace, attn__reference_backward_size(canonical));
    return ATTN_OK;
}

static void apply(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                  void *workspace)
{
    (void)recipe;
    if (canonical->backward)
        attn__reference_backward(canonical, arrays, workspace);
    else
        attn__reference_forward(canonical, arrays, workspace);
}

const attn__solver attn__solver_reference = {
    .name = "reference", .refuse = refuse, .cost = cost, .plan = plan, .apply = apply, .extras = ~0u};
