/* SPDX-License-Identifier: MIT
 *
 * Additive attention (Bahdanau et al. 2014), whose score(q, k) is the dot product of w and tanh(q + k). A tensor
 * library would store tanh's inputs in an array [Tq,Tk,D]. Here this array is never stored. q and k are the outputs of
 * the paper's two linear layers.
 */
#include "example.h"

enum { TQ = 3, TK = 6, D = 16, DV = 4, CONTRACT_DIM = 4 };

static void expected_row(const float *q, const float *k, const float *w, int keys, double *weights)
{
    double sum = 0;
    for (int j = 0; j < keys; j++) {
        double score = 0;
        for (int c = 0; c < D; c++)
            score += (double)w[c] * tanh((double)q[c] + (double)k[j * D + c]);
        sum += weights[j] = exp(score);
    }
    for (int j = 0; j < keys; j++)
        weights[j] /= sum;
}

int main(void)
{
    static float q[TQ * D], k[TK * D], v[TK * DV], w[D], o[TQ * DV], weights[TQ * TK];
    const int32_t lens[1] = {TK - 1};
    fill(q, COUNT(q), 1), fill(k, COUNT(k), 2), fill(v, COUNT(v), 3), fill(w, COUNT(w), 4);
    attn_context *context = begin();

    /* The dims are the same as for dot-product attention. Only the score differs, and has its own operand w. */
    attn_problem problem;
    must(context,
         attn_problem_heads(
             &problem,
             &(attn_heads){
                 .batch = 1, .heads = 1, .queries = TQ, .keys = TK, .dim = D, .dim_value = DV, .lens_per = 1}));
    problem.score = ATTN_SCORE_ADDITIVE;
    problem.dims[CONTRACT_DIM].w = 1;
    problem.flags |= ATTN_WANT_WEIGHTS;
    print_table("additive attention, heads of 16 for the score and 4 for the values", &problem);
    run(context, &problem, &(attn_arrays){.q = q, .k = k, .v = v, .w = w, .lens = lens, .o = o, .weights = weights});

    double most = 0;
    for (int i = 0; i < TQ; i++) {
        double row[TK] = {0}, value = 0;
        expected_row(q + i * D, k, w, lens[0], row);
        printf("query %d attends", i);
        for (int j = 0; j < TK; j++) {
            printf(" %.4f", (double)weights[i * TK + j]);
            most = fmax(most, fabs(row[j] - (double)weights[i * TK + j]));
            value += row[j] * (double)v[j * DV];
        }
        printf("\n");
        most = fmax(most, fabs(value - (double)o[i * DV]));
    }
    claim(most < 1e-6, "the weights and the output follow the formula");
    attn_context_destroy(context);
    return 0;
}
