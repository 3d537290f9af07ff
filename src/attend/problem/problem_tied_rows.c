/* SPDX-License-Identifier: MIT
 * Tied row attention as a table of dimensions: rows are summed in the score and carried to the output. */
#include "attn/attn.h"

#include <math.h>

attn_status attn_problem_tied_rows(attn_problem *problem, int64_t rows, int64_t cols, int64_t batch, int64_t heads,
                                   int64_t dim)
{
    *problem = (attn_problem){0};
    int64_t head, token, row, elements;
    if (rows < 0 || cols < 0 || batch < 0 || heads < 0 || dim < 0 || __builtin_mul_overflow(heads, dim, &head) ||
        __builtin_mul_overflow(batch, head, &token) || __builtin_mul_overflow(cols, token, &row) ||
        __builtin_mul_overflow(rows, row, &elements))
        return ATTN_ERROR_ARGUMENT;
    const attn_dim dims[] = {
        {.role = ATTN_ROLE_BATCH,
         .n = heads,
         .q = dim,
         .k = dim,
         .v = dim,
         .o = dim,
         .lse = batch * cols,
         .weights = batch * cols * cols},
        {.role = ATTN_ROLE_BATCH,
         .n = batch,
         .q = head,
         .k = head,
         .v = head,
         .o = head,
         .lse = cols,
         .weights = cols * cols},
        {.role = ATTN_ROLE_QUERY, .n = cols, .q = token, .o = token, .lse = 1, .weights = cols},
        {.role = ATTN_ROLE_KEY, .n = cols, .k = token, .v = token, .weights = 1},
        {.role = ATTN_ROLE_CONTRACT, .n = rows, .q = row, .k = row},
        {.role = ATTN_ROLE_CONTRACT, .n = dim, .q = 1, .k = 1},
        {.role = ATTN_ROLE_VALUE, .n = rows, .v = row, .o = row},
        {.role = ATTN_ROLE_VALUE, .n = dim, .v = 1, .o = 1},
    };
    problem->ndims = (int)(sizeof dims / sizeof *dims);
    for (int i = 0; i < problem->ndims; i++)
        problem->dims[i] = dims[i];
    if (dim > 0 && rows > 0)
        problem->scale = 1 / sqrt((double)dim * (double)rows);
    return ATTN_OK;
}
