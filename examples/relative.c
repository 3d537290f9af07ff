/* SPDX-License-Identifier: MIT
 *
 * Shows two kinds of relative positions. In the first kind, a table of channels is multiplied with the queries (Shaw et
 * al. 2018). In the second kind, one number for each distance is added to the score (Raffel et al. 2019). These numbers
 * form a Toeplitz matrix, which strides can express.
 */
#include "example.h"

enum { T = 12, D = 8, ROWS = 2 * T - 1, QUERY_DIM = 2, KEY_DIM = 3, CONTRACT_DIM = 4 };

static float q[T * D], k[T * D], v[T * D], o[T * D], expected[T * D], matrix[T * T];

/* Computes the same result with an explicit bias, which has one number for each pair of a query and a key. */
static void run_with_matrix(attn_context *context, attn_problem problem)
{
    problem.dims[QUERY_DIM].bias = T, problem.dims[KEY_DIM].bias = 1;
    problem.flags = ATTN_WITH_BIAS;
    run(context, &problem, &(attn_arrays){.q = q, .k = k, .v = v, .bias = matrix, .o = expected});
}

int main(void)
{
    static float toeplitz[ROWS], table[ROWS * D];
    fill(q, T * D, 1), fill(k, T * D, 2), fill(v, T * D, 3), fill(toeplitz, ROWS, 4), fill(table, ROWS * D, 5);
    attn_context *context = begin();
    attn_problem plain, problem;
    must(context, attn_problem_heads(&plain, &(attn_heads){.batch = 1, .heads = 1, .queries = T, .keys = T, .dim = D}));

    /* The bias is bias[i][j] = toeplitz[j - i + T - 1], so its stride along queries is -1. The pointer is the
     * address of the element for i = j = 0. */
    problem = plain;
    problem.dims[QUERY_DIM].bias = -1, problem.dims[KEY_DIM].bias = 1;
    problem.flags = ATTN_WITH_BIAS;
    print_table("a Toeplitz bias", &problem);
    run(context, &problem, &(attn_arrays){.q = q, .k = k, .v = v, .bias = toeplitz + T - 1, .o = o});
    for (int i = 0; i < T; i++)
        for (int j = 0; j < T; j++)
            matrix[i * T + j] = toeplitz[j - i + T - 1];
    run_with_matrix(context, plain);
    printf("%d numbers instead of %d\n", ROWS, T * T);
    claim(furthest(o, expected, T * D) < 1e-6, "strides make the Toeplitz matrix");

    /* Before scaling, the score gets the term q_i . table[j - i + T - 1]. All heads use one table. */
    problem = plain;
    problem.nrelatives = 1;
    problem.relatives[0] = (attn_relative){.kind = ATTN_RELATIVE_QUERY,
                                           .query_dim = QUERY_DIM,
                                           .key_dim = KEY_DIM,
                                           .offset = T - 1,
                                           .rows = ROWS,
                                           .row_stride = D};
    problem.relatives[0].stride[CONTRACT_DIM] = 1;
    run(context, &problem, &(attn_arrays){.q = q, .k = k, .v = v, .table = {table}, .o = o});
    for (int i = 0; i < T; i++)
        for (int j = 0; j < T; j++) {
            double sum = 0;
            for (int c = 0; c < D; c++)
                sum += (double)q[i * D + c] * (double)table[(j - i + T - 1) * D + c];
            matrix[i * T + j] = (float)(sum / sqrt(D));
        }
    run_with_matrix(context, plain);
    claim(furthest(o, expected, T * D) < 1e-6, "the table gives what its products give as a bias");
    attn_context_destroy(context);
    return 0;
}
