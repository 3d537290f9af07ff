/* SPDX-License-Identifier: MIT
 *
 * Computes the weights of a few rows of one head, without the whole map. Then merges attention over two halves of the
 * keys, as in ring attention and paged caches. Merging uses the log-sum-exp of each row.
 */
#include "example.h"

enum { H = 4, T = 64, D = 16, ROW = H * D };
enum { HEAD_DIM = 1, QUERY_DIM = 2, KEY_DIM = 3 }; /* the indices of dims in problems of attn_problem_heads */

static float q[T * ROW], k[T * ROW], v[T * ROW], o[T * ROW], lse[H * T];

static void show_picked(attn_context *context, attn_problem problem)
{
    static const int64_t head[] = {2}, rows[] = {0, 63};
    static float weights[1 * 2 * T]; /* along a picked dim, the length is the number of picks */
    problem.picks[problem.npicks++] = (attn_pick){.dim = HEAD_DIM, .n = 1, .index = head};
    problem.picks[problem.npicks++] = (attn_pick){.dim = QUERY_DIM, .n = 2, .index = rows};
    problem.dims[HEAD_DIM].weights = 2 * T, problem.dims[QUERY_DIM].weights = T, problem.dims[KEY_DIM].weights = 1;
    problem.flags |= ATTN_WANT_WEIGHTS;
    run(context, &problem, &(attn_arrays){.q = q, .k = k, .v = v, .o = o, .lse = lse, .weights = weights});
    printf("%zu bytes of weights, not %zu\n", sizeof weights, sizeof *weights * H * T * T);
    for (int r = 0; r < 2; r++) {
        double sum = 0;
        for (int j = 0; j < T; j++)
            sum += (double)weights[r * T + j];
        printf("head 2, query %2d: %.4f %.4f %.4f ... sum %.6f\n", (int)rows[r], (double)weights[r * T],
               (double)weights[r * T + 1], (double)weights[r * T + 2], sum);
        claim(fabs(sum - 1) < 1e-5, "a row of weights sums to 1");
    }
}

int main(void)
{
    static float part_o[2][T * ROW], part_lse[2][H * T], merged[T * ROW];
    fill(q, COUNT(q), 1), fill(k, COUNT(k), 2), fill(v, COUNT(v), 3);
    attn_context *context = begin();
    attn_problem problem;
    attn_heads heads = {.batch = 1, .heads = H, .queries = T, .keys = T, .dim = D};
    must(context, attn_problem_heads(&problem, &heads));
    problem.flags = ATTN_WANT_LSE;
    show_picked(context, problem);

    /* Attention over each half of the keys is merged by o = sum over halves of exp(lse_half - lse) o_half. */
    heads.keys = T / 2;
    must(context, attn_problem_heads(&problem, &heads));
    problem.flags = ATTN_WANT_LSE;
    for (int i = 0; i < 2; i++)
        run(context, &problem,
            &(attn_arrays){
                .q = q, .k = k + i * T / 2 * ROW, .v = v + i * T / 2 * ROW, .o = part_o[i], .lse = part_lse[i]});
    double most = 0;
    for (int t = 0; t < T; t++)
        for (int h = 0; h < H; h++) {
            double a = (double)part_lse[0][h * T + t], b = (double)part_lse[1][h * T + t];
            double whole = fmax(a, b) + log1p(exp(-fabs(a - b)));
            most = fmax(most, fabs(whole - (double)lse[h * T + t]));
            for (int c = t * ROW + h * D; c < t * ROW + (h + 1) * D; c++)
                merged[c] = (float)(exp(a - whole) * (double)part_o[0][c] + exp(b - whole) * (double)part_o[1][c]);
        }
    most = fmax(most, furthest(merged, o, COUNT(o)));
    printf("furthest apart: %.1e\n", most);
    claim(most < 1e-5, "two halves of the keys, merged by their log-sum-exp, are the whole");
    attn_context_destroy(context);
    return 0;
}
