/* SPDX-License-Identifier: MIT
 *
 * Tied rows (Rao et al. 2021), in which the sequences of an alignment share one attention map between columns. The
 * scores of the rows are summed. So the row is a CONTRACT dim and a VALUE dim, and not a BATCH dim.
 */
#include "example.h"

enum { R = 6, C = 9, B = 1, H = 2, D = 4 }; /* there are 6 sequences and 9 columns */

static int at(int r, int c, int h, int d)
{
    return ((r * C + c) * H + h) * D + d;
}

/* Computes a row of the map from its formula: the softmax over j of scores that are summed over sequences r and
 * channels. */
static void expected_row(const float *q, const float *k, int h, int i, double *weights)
{
    double sum = 0;
    for (int j = 0; j < C; j++) {
        double score = 0;
        for (int r = 0; r < R; r++)
            for (int d = 0; d < D; d++)
                score += (double)q[at(r, i, h, d)] * (double)k[at(r, j, h, d)];
        sum += weights[j] = exp(score / sqrt(D * R));
    }
    for (int j = 0; j < C; j++)
        weights[j] /= sum;
}

int main(void)
{
    static float q[R * C * B * H * D], k[R * C * B * H * D], v[R * C * B * H * D], o[R * C * B * H * D];
    static float map[H * B * C * C];
    fill(q, COUNT(q), 1), fill(k, COUNT(k), 2), fill(v, COUNT(v), 3);
    attn_context *context = begin();

    attn_problem problem;
    must(context, attn_problem_tied_rows(&problem, R, C, B, H, D));
    problem.flags |= ATTN_WANT_WEIGHTS; /* All rows share one map, so the weights are [H,B,C,C]. */
    print_table("tied rows", &problem);
    run(context, &problem, &(attn_arrays){.q = q, .k = k, .v = v, .o = o, .weights = map});

    double most = 0;
    for (int h = 0; h < H; h++)
        for (int i = 0; i < C; i++) {
            double weights[C], value = 0;
            expected_row(q, k, h, i, weights);
            for (int j = 0; j < C; j++) {
                most = fmax(most, fabs(weights[j] - (double)map[(h * C + i) * C + j]));
                value += weights[j] * (double)v[at(R - 1, j, h, 0)];
            }
            most = fmax(most, fabs(value - (double)o[at(R - 1, i, h, 0)]));
        }
    printf("which column attends which, head 0, column 0:");
    for (int j = 0; j < C; j++)
        printf(" %.3f", (double)map[j]);
    printf("\nfurthest from the formula: %.1e\n", most);
    claim(most < 1e-6, "one map serves all rows");
    attn_context_destroy(context);
    return 0;
}
