/* SPDX-License-Identifier: MIT
 *
 * Shows masks and biases. Each of them is an array over batch, query and key, with a stride of 0 along dims where it is
 * constant. The program also shows the output of a row that attends to no key.
 */
#include "example.h"

enum { B = 2, H = 2, T = 4, D = 8, ROW = H * D };
enum { HEAD_DIM = 1, QUERY_DIM = 2, KEY_DIM = 3 }; /* the indices of dims in problems of attn_problem_heads */

static void print_weights(const char *title, const float *weights)
{
    printf("%s, batch 0, head 0\n", title);
    for (int i = 0; i < T; i++)
        printf("  %.3f %.3f %.3f %.3f\n", (double)weights[i * T], (double)weights[i * T + 1],
               (double)weights[i * T + 2], (double)weights[i * T + 3]);
}

int main(void)
{
    static float q[B * T * ROW], k[B * T * ROW], v[B * T * ROW], o[B * T * ROW], weights[B * H * T * T];
    static float lse[B * H * T];
    fill(q, COUNT(q), 1), fill(k, COUNT(k), 2), fill(v, COUNT(v), 3);
    attn_context *context = begin();
    attn_heads heads = {.batch = B, .heads = H, .queries = T, .keys = T, .dim = D};
    attn_arrays arrays = {.q = q, .k = k, .v = v, .o = o, .lse = lse, .weights = weights};

    /* A boolean mask [Tq,Tk] for all batches and heads. It has one byte for each entry, and a nonzero byte means
     * that the query attends to the key. Query 2 has no key. */
    static const uint8_t mask[T * T] = {1, 0, 0, 0, /**/ 1, 1, 0, 0, /**/ 0, 0, 0, 0, /**/ 0, 1, 0, 1};
    attn_problem problem;
    must(context, attn_problem_heads(&problem, &heads));
    /* A stride of 0 along the other dims broadcasts the mask. */
    problem.dims[QUERY_DIM].mask = T, problem.dims[KEY_DIM].mask = 1;
    problem.flags = ATTN_WITH_MASK | ATTN_WANT_LSE | ATTN_WANT_WEIGHTS;
    arrays.mask = mask;
    print_table("a boolean mask", &problem);
    run(context, &problem, &arrays);
    print_weights("weights", weights);
    claim(o[2 * ROW] == 0 && isinf(lse[2]) && lse[2] < 0, "a row without keys gives 0, and -inf as its log-sum-exp");

    /* With mask_fill, a masked key gets a finite score. So a row without keys gives the mean of all values. */
    problem.mask_fill = -1e6;
    run(context, &problem, &arrays);
    claim(fabsf(weights[2 * T + 1] - 0.25f) < 1e-6f, "with a finite mask_fill it attends everything alike");

    /* Key padding is a mask [B,Tk]. NaN in a masked key has no effect. */
    static const uint8_t padding[B * T] = {1, 1, 1, 0, /**/ 1, 1, 1, 1};
    heads.key_padding = true;
    must(context, attn_problem_heads(&problem, &heads));
    k[3 * ROW] = v[3 * ROW] = NAN;
    run(context, &problem, &(attn_arrays){.q = q, .k = k, .v = v, .o = o, .mask = padding});
    claim(!isnan(o[0]) && !isnan(o[(B * T - 1) * ROW]), "NaN in a padded key does not leak");
    fill(k, COUNT(k), 2), fill(v, COUNT(v), 3);

    /* A bias [H,Tk] that is broadcast over batches and queries. An entry of -inf masks its key. */
    static float bias[H * T] = {0, 1, 2, 0, /**/ 3, 2, 1, 0};
    bias[T - 1] = -INFINITY;
    heads.key_padding = false;
    must(context, attn_problem_heads(&problem, &heads));
    problem.dims[HEAD_DIM].bias = T, problem.dims[KEY_DIM].bias = 1;
    problem.flags = ATTN_WITH_BIAS | ATTN_WANT_WEIGHTS;
    arrays.bias = bias;
    print_table("an additive bias", &problem);
    run(context, &problem, &arrays);
    print_weights("weights", weights);
    claim(weights[T - 1] == 0 && weights[T * T + T - 1] > 0, "-inf in head 0's bias masks a key there, and only there");
    attn_context_destroy(context);
    return 0;
}
