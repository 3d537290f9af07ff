/* SPDX-License-Identifier: MIT
 *
 * Computes gradients of q, k, v and an additive bias, and checks them by difference quotients. The forward run stores
 * only o and the log-sum-exp. The backward run recomputes the weights.
 */
#include "example.h"

enum { H = 2, TQ = 5, TK = 7, D = 4, QUERIES = TQ * H * D, KEYS = TK * H * D };
enum { HEAD_DIM = 1, QUERY_DIM = 2, KEY_DIM = 3 }; /* the indices of dims in problems of attn_problem_heads */

static float q[QUERIES], k[KEYS], v[KEYS], bias[H * TQ * TK], o[QUERIES], lse[H * TQ];
static float dout[QUERIES], dq[QUERIES], dk[KEYS], dv[KEYS], dbias[H * TQ * TK];
static attn_arrays arrays = {.q = q,
                             .k = k,
                             .v = v,
                             .bias = bias,
                             .o = o,
                             .lse = lse,
                             .dout = dout,
                             .dq = dq,
                             .dk = dk,
                             .dv = dv,
                             .dbias = dbias};

/* Returns the loss sum(o * dout), whose gradient with respect to o is dout. */
static double loss(attn_context *context, const attn_plan *forward)
{
    double sum = 0;
    must(context, attn_plan_execute(forward, &arrays, NULL));
    for (int i = 0; i < QUERIES; i++)
        sum += (double)o[i] * (double)dout[i];
    return sum;
}

/* Returns the largest difference between an element of the gradient and its difference quotient (loss(x + h) -
 * loss(x - h)) / 2h. */
static double check(attn_context *context, const attn_plan *forward, const char *name, float *x, const float *dx, int n)
{
    const float h = 0.01f;
    double most = 0;
    for (int i = 0; i < n; i++) {
        float kept = x[i], above = kept + h, below = kept - h;
        x[i] = above;
        double quotient = loss(context, forward);
        x[i] = below;
        quotient = (quotient - loss(context, forward)) / ((double)above - (double)below);
        x[i] = kept;
        most = fmax(most, fabs(quotient - (double)dx[i]));
    }
    printf("d%-4s  %3d numbers, first %+.5f, furthest from the quotient %.1e\n", name, n, (double)dx[0], most);
    return most;
}

int main(void)
{
    fill(q, QUERIES, 1), fill(k, KEYS, 2), fill(v, KEYS, 3), fill(bias, COUNT(bias), 4), fill(dout, QUERIES, 5);
    attn_context *context = begin();
    attn_problem problem;
    attn_heads heads = {.batch = 1, .heads = H, .queries = TQ, .keys = TK, .dim = D};
    must(context, attn_problem_heads(&problem, &heads));
    problem.dims[HEAD_DIM].bias = TQ * TK, problem.dims[QUERY_DIM].bias = TK, problem.dims[KEY_DIM].bias = 1;
    print_table("the forward table; gradients go by the strides of their operands", &problem);

    attn_plan *forward, *backward;
    problem.flags = ATTN_WITH_BIAS | ATTN_WANT_LSE;
    must(context, attn_plan_create(&forward, context, &problem, NULL));
    problem.direction = ATTN_DIRECTION_BACKWARD;
    problem.flags = ATTN_WITH_BIAS | ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV | ATTN_WANT_DBIAS;
    must(context, attn_plan_create(&backward, context, &problem, NULL));

    must(context, attn_plan_execute(forward, &arrays, NULL));
    must(context, attn_plan_execute(backward, &arrays, NULL));
    double most = check(context, forward, "q", q, dq, QUERIES);
    most = fmax(most, check(context, forward, "k", k, dk, KEYS));
    most = fmax(most, check(context, forward, "v", v, dv, KEYS));
    most = fmax(most, check(context, forward, "bias", bias, dbias, (int)COUNT(bias)));
    claim(most < 2e-4, "every gradient is the slope of the loss");
    attn_plan_destroy(forward);
    attn_plan_destroy(backward);
    attn_context_destroy(context);
    return 0;
}
