/* SPDX-License-Identifier: MIT
 *
 * A 3 x 3 window over images with two relative tables, as in stand-alone self-attention (Ramachandran et al. 2019). The
 * first half of a head's channels uses a table of row distances, and the second half uses a table of column distances.
 * Checks the forward pass against plain loops. Checks all gradients, including the gradients of the tables, against
 * difference quotients.
 */
#include "example.h"

enum { B = 2, Y = 4, X = 5, H = 2, D = 6, W = 3, HALF = D / 2, N = B * Y * X * H * D };

/* The indices of dims in problems of attn_problem_window2d. */
enum { BATCH, HEAD, QUERY_Y, QUERY_X, KEY_Y, KEY_X, CHANNEL, VALUE };

static float q[N], k[N], v[N], o[N], lse[B * H * Y * X], table_y[W * HALF], table_x[W * HALF];

static attn_problem describe(attn_context *context)
{
    attn_problem problem;
    must(context, attn_problem_window2d(&problem, &(attn_window2d){.batch = B,
                                                                   .height = Y,
                                                                   .width = X,
                                                                   .heads = H,
                                                                   .dim = D,
                                                                   .window_y = W,
                                                                   .window_x = W,
                                                                   .border = ATTN_BORDER_MASK}));
    /* Row d of a table belongs to distance d - 1. The table is multiplied with channels begin to end - 1 of q. */
    attn_relative relative = {.kind = ATTN_RELATIVE_QUERY, .offset = W / 2, .rows = W, .row_stride = HALF};
    relative.stride[CHANNEL] = 1;
    relative.query_dim = QUERY_Y, relative.key_dim = KEY_Y, relative.begin = 0, relative.end = HALF;
    problem.relatives[0] = relative;
    relative.query_dim = QUERY_X, relative.key_dim = KEY_X, relative.begin = HALF, relative.end = D;
    problem.relatives[1] = relative;
    problem.nrelatives = 2;
    return problem;
}

static size_t at(int b, int y, int x, int h)
{
    return (size_t)(((b * Y + y) * X + x) * H + h) * D;
}

/* Computes the output of one query. If a position is outside of the image, it is masked. */
static void naive(float *to, int b, int y, int x, int h)
{
    double weights[W * W], sum = 0;
    for (int t = 0; t < W * W; t++) {
        int dy = t / W - 1, dx = t % W - 1;
        bool inside = y + dy >= 0 && y + dy < Y && x + dx >= 0 && x + dx < X;
        double score = 0;
        for (int c = 0; c < D && inside; c++) {
            double relative = (double)(c < HALF ? table_y[(dy + 1) * HALF + c] : table_x[(dx + 1) * HALF + c - HALF]);
            score +=
                (double)q[at(b, y, x, h) + (size_t)c] * ((double)k[at(b, y + dy, x + dx, h) + (size_t)c] + relative);
        }
        weights[t] = inside ? exp(score / sqrt(D)) : 0;
        sum += weights[t];
    }
    for (int c = 0; c < D; c++) {
        double mean = 0;
        for (int t = 0; t < W * W; t++)
            if (weights[t] > 0)
                mean += weights[t] / sum * (double)v[at(b, y + t / W - 1, x + t % W - 1, h) + (size_t)c];
        to[c] = (float)mean;
    }
}

/* Returns the loss, which is half the sum of the squared outputs. So its gradient with respect to o is o. */
static double loss(attn_context *context, const attn_problem *forward)
{
    double sum = 0;
    run(context, forward, &(attn_arrays){.q = q, .k = k, .v = v, .table = {table_y, table_x}, .o = o, .lse = lse});
    for (int i = 0; i < N; i++)
        sum += (double)o[i] * (double)o[i] / 2;
    return sum;
}

/* Returns the difference between element i of a gradient and the difference quotient of the loss. */
static double off(attn_context *context, const attn_problem *forward, float *x, const float *gradient, int i)
{
    const float kept = x[i], step = 1.0f / 64;
    x[i] = kept + step;
    double up = loss(context, forward);
    x[i] = kept - step;
    double down = loss(context, forward);
    x[i] = kept;
    return fabs((up - down) / (2 * (double)step) - (double)gradient[i]);
}

int main(void)
{
    static float expected[N], dout[N], dq[N], dk[N], dv[N], dtable_y[W * HALF], dtable_x[W * HALF];
    fill(q, N, 1), fill(k, N, 2), fill(v, N, 3), fill(table_y, W * HALF, 4), fill(table_x, W * HALF, 5);
    attn_context *context = begin();
    attn_problem forward = describe(context);
    print_table("o is [B,Y,X,H,D], the log-sum-exp [B,H,Y,X]", &forward);

    forward.flags = ATTN_WANT_LSE; /* The backward pass needs o and lse. */
    loss(context, &forward);
    for (int i = 0; i < B * Y * X * H; i++)
        naive(expected + i * D, i / (Y * X * H), i / (X * H) % Y, i / H % X, i % H);
    claim(furthest(o, expected, N) < 1e-5, "the window is what the loops say");

    attn_problem backward = describe(context);
    backward.direction = ATTN_DIRECTION_BACKWARD;
    backward.flags = ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV | ATTN_WANT_DTABLES;
    for (int i = 0; i < N; i++)
        dout[i] = o[i];
    run(context, &backward,
        &(attn_arrays){.q = q,
                       .k = k,
                       .v = v,
                       .table = {table_y, table_x},
                       .o = o,
                       .lse = lse,
                       .dout = dout,
                       .dq = dq,
                       .dk = dk,
                       .dv = dv,
                       .dtable = {dtable_y, dtable_x}});
    double most = 0;
    for (int i = 0; i < W * HALF; i++) {
        most = fmax(most, off(context, &forward, table_y, dtable_y, i));
        most = fmax(most, off(context, &forward, table_x, dtable_x, i));
        most = fmax(most, off(context, &forward, q, dq, 7 * i));
        most = fmax(most, off(context, &forward, k, dk, 7 * i));
        most = fmax(most, off(context, &forward, v, dv, 7 * i));
    }
    printf("largest distance from a difference quotient: %.1e\n", most);
    claim(most < 2e-4, "gradients of q, k, v and both tables");
    attn_context_destroy(context);
    return 0;
}
