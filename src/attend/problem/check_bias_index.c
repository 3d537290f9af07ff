/* SPDX-License-Identifier: MIT
 * Checks a bias that is read through an index; its entries are checked when a plan runs. */
#include "attend/problem/problem.h"

/* Numbers of the bias that is spread out: one for each entry of the index and each index of the table's BATCH dims. */
static bool fits(const attn_problem *p)
{
    int64_t entries = 1, part; /* no product overflows that the sizes' check has seen */
    bool ok = true;
    for (int i = 0; i < p->ndims; i++) {
        int64_t stride = p->dims[i].bias < 0 ? -p->dims[i].bias : p->dims[i].bias;
        if ((p->dims[i].role == ATTN_ROLE_QUERY || p->dims[i].role == ATTN_ROLE_KEY) && p->dims[i].n > 1)
            ok = ok && !__builtin_mul_overflow(p->dims[i].n - 1, stride, &part) &&
                 !__builtin_add_overflow(entries, part, &entries);
    }
    for (int i = 0; i < p->ndims; i++)
        if (p->dims[i].role == ATTN_ROLE_BATCH && p->dims[i].bias != 0 && p->dims[i].n > 1)
            ok = ok && !__builtin_mul_overflow(entries, p->dims[i].n, &entries);
    return ok && entries <= INT64_MAX / 64;
}

static bool reach_fits(const attn_bias_index *x)
{
    int64_t reach;
    return !__builtin_mul_overflow(x->rows, x->row_stride, &reach) && reach <= INT64_MAX / 64 &&
           reach >= -(INT64_MAX / 64);
}

attn_status attn__check_bias_index(attn_context *context, const attn_problem *p)
{
    if (!(p->flags & ATTN_WITH_BIAS_INDEX))
        return ATTN_OK;
    if (!(p->flags & ATTN_WITH_BIAS))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "there is an index of a bias, but no bias");
    if (p->bias_index.rows < 1 || p->bias_index.rows > INT32_MAX)
        return attn__fail(context, ATTN_ERROR_SHAPE, "bias_index.rows is %lld; a table has 1 to 2^31 - 1 rows",
                          (long long)p->bias_index.rows);
    if (!reach_fits(&p->bias_index) || !fits(p))
        return attn__fail(context, ATTN_ERROR_SHAPE, "the size of the bias that bias_index spreads out overflows");
    if (p->direction == ATTN_DIRECTION_BACKWARD && (p->flags & ATTN_WANT_DBIAS) && p->accumulate)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED, "dbias: accumulate where pairs share the rows of a table");
    return ATTN_OK;
}
