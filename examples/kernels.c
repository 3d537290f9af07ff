/* SPDX-License-Identifier: MIT
 *
 * Nadaraya-Watson regression, which is attention over training points. The score is a kernel of the distance. Keys are
 * the positions of known points, and values are the points' values. Queries are the positions where values are
 * estimated.
 */
#include "example.h"

enum { POINTS = 50, ASKED = 11 };

static double curve(double x)
{
    return 2 * sin(x) + pow(x, 0.8);
}

/* Computes the estimate from its definition, sum K(x - x_i) y_i / sum K(x - x_i). */
static double expected(attn_score kernel, const float *x, const float *y, double at)
{
    double above = 0, below = 0;
    for (int i = 0; i < POINTS; i++) {
        double u = fabs(at - (double)x[i]), weight = kernel == ATTN_SCORE_GAUSSIAN     ? exp(-u * u / 2)
                                                     : kernel == ATTN_SCORE_BOXCAR     ? u < 1
                                                     : kernel == ATTN_SCORE_TRIANGULAR ? fmax(0, 1 - u)
                                                                                       : 1;
        above += weight * (double)y[i];
        below += weight;
    }
    return above / below;
}

int main(void)
{
    /* The Gaussian score is the logarithm of its kernel, so it needs softmax. The other scores are the kernels
     * themselves. */
    static const struct {
        const char *name;
        attn_score score;
        attn_normalization normalize;
    } kernels[] = {{"gaussian", ATTN_SCORE_GAUSSIAN, ATTN_NORMALIZATION_SOFTMAX},
                   {"boxcar", ATTN_SCORE_BOXCAR, ATTN_NORMALIZATION_SUM},
                   {"triangular", ATTN_SCORE_TRIANGULAR, ATTN_NORMALIZATION_SUM},
                   {"constant", ATTN_SCORE_CONSTANT, ATTN_NORMALIZATION_SUM}};
    static float x[POINTS], y[POINTS], noise[POINTS], at[ASKED], estimate[COUNT(kernels)][ASKED];
    fill(noise, POINTS, 1);
    for (int i = 0; i < POINTS; i++) {
        x[i] = 0.1f * (float)i;
        y[i] = (float)curve((double)x[i]) + 0.5f * noise[i];
    }
    for (int i = 0; i < ASKED; i++)
        /* Each query is between two points. Its distance to a point is never 1, because the boxcar has an edge
         * there. */
        at[i] = 0.47f * (float)i + 0.015f;
    attn_context *context = begin();

    attn_problem problem = {.ndims = 4, .width = 1};
    problem.dims[0] = (attn_dim){.role = ATTN_ROLE_QUERY, .n = ASKED, .q = 1, .o = 1};
    problem.dims[1] = (attn_dim){.role = ATTN_ROLE_KEY, .n = POINTS, .k = 1, .v = 1};
    /* Points on a line have n = 1 coordinate. Points in a plane would have n = 2. */
    problem.dims[2] = (attn_dim){.role = ATTN_ROLE_CONTRACT, .n = 1, .q = 1, .k = 1};
    problem.dims[3] = (attn_dim){.role = ATTN_ROLE_VALUE, .n = 1, .v = 1, .o = 1};
    print_table("regression", &problem);

    double most = 0;
    for (size_t i = 0; i < COUNT(kernels); i++) {
        problem.score = kernels[i].score;
        problem.normalization = kernels[i].normalize;
        run(context, &problem, &(attn_arrays){.q = at, .k = x, .v = y, .o = estimate[i]});
        for (int j = 0; j < ASKED; j++)
            most = fmax(most, fabs((double)estimate[i][j] - expected(kernels[i].score, x, y, (double)at[j])));
    }
    printf("    x  truth gaussian boxcar triangular constant\n");
    for (int j = 0; j < ASKED; j++)
        printf("%5.2f %6.2f %8.2f %6.2f %10.2f %8.2f\n", (double)at[j], curve((double)at[j]), (double)estimate[0][j],
               (double)estimate[1][j], (double)estimate[2][j], (double)estimate[3][j]);
    claim(most < 1e-5, "every estimate follows its definition");
    attn_context_destroy(context);
    return 0;
}
