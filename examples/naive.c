/* SPDX-License-Identifier: MIT
 *
 * Checks the usual problems against plain loops that define them. These are heads (grouped, causal, with lengths,
 * inside a packed matrix), one axis of an image, and tied rows of an alignment.
 */
#include "example.h"

enum { B = 2, H = 4, HK = 2, T = 9, D = 8, Y = 5, X = 6, R = 3 };

/* Computes o = softmax(score) v for one query. There are `keys` scores, and value j has D channels at v[j * step]. */
static void attend(float *o, const double *score, int keys, const float *v, int step)
{
    double most = -INFINITY, sum = 0;
    for (int j = 0; j < keys; j++)
        most = fmax(most, score[j]);
    for (int c = 0; c < D; c++)
        o[c] = 0;
    for (int j = 0; j < keys; j++)
        sum += exp(score[j] - most);
    for (int j = 0; j < keys; j++)
        for (int c = 0; c < D; c++)
            o[c] += (float)(exp(score[j] - most) / sum * (double)v[j * step + c]);
}

static double dot(const float *a, const float *b)
{
    double sum = 0;
    for (int c = 0; c < D; c++)
        sum += (double)a[c] * (double)b[c];
    return sum;
}

/* Tests q, k and v that are parts of one matrix [B,T,(H+HK+HK)*D], the output of one linear layer. o is [B,T,H,D]. Two
 * heads of q share each head of k and v. Query i attends to key j if j <= i and j < lens[b]. */
static void heads(attn_context *context)
{
    enum { ROW = (H + 2 * HK) * D };
    static float qkv[B * T * ROW], o[B * T * H * D], expected[B * T * H * D];
    const int32_t lens[B] = {T, 4};
    attn_problem problem;
    fill(qkv, COUNT(qkv), 1);
    const float *q = qkv, *k = qkv + H * D, *v = qkv + (H + HK) * D;
    must(context, attn_problem_heads(&problem, &(attn_heads){.batch = B,
                                                             .heads = H,
                                                             .kv_heads = HK,
                                                             .queries = T,
                                                             .keys = T,
                                                             .dim = D,
                                                             .q_row = ROW,
                                                             .k_row = ROW,
                                                             .v_row = ROW,
                                                             .causal = ATTN_CAUSAL_TOP_LEFT,
                                                             .lens_per = 1}));
    run(context, &problem, &(attn_arrays){.q = q, .k = k, .v = v, .lens = lens, .o = o});
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int i = 0; i < T; i++) {
                double score[T];
                int at = b * T * ROW + h / (H / HK) * D, keys = i < lens[b] ? i + 1 : lens[b];
                for (int j = 0; j < keys; j++)
                    score[j] = dot(q + (b * T + i) * ROW + h * D, k + at + j * ROW) / sqrt(D);
                attend(expected + ((b * T + i) * H + h) * D, score, keys, v + at, ROW);
            }
    claim(furthest(o, expected, COUNT(o)) < 1e-5, "grouped, causal heads with lengths, in a packed matrix");
}

/* Tests attention of x [B,Y,X,H*D] along Y, in which each column of each image is separate. */
static void axis(attn_context *context)
{
    enum { ROW = X * H * D, N = B * Y * ROW };
    static float q[N], k[N], v[N], o[N], expected[N];
    attn_problem problem;
    fill(q, N, 1), fill(k, N, 2), fill(v, N, 3);
    must(context,
         attn_problem_axis(
             &problem, &(attn_axis){.rank = 4, .shape = {B, Y, X, H * D}, .axis = 1, .channel_axis = 3, .heads = H}));
    run(context, &problem, &(attn_arrays){.q = q, .k = k, .v = v, .o = o});
    for (int b = 0; b < B; b++)
        for (int x = 0; x < X; x++)
            for (int h = 0; h < H; h++)
                for (int i = 0; i < Y; i++) {
                    double score[Y];
                    int at = b * Y * ROW + (x * H + h) * D;
                    for (int j = 0; j < Y; j++)
                        score[j] = dot(q + at + i * ROW, k + at + j * ROW) / sqrt(D);
                    attend(expected + at + i * ROW, score, Y, v + at, ROW);
                }
    claim(furthest(o, expected, N) < 1e-5, "one axis of an image");
}

/* Tests tied rows: q, k, v and o are [R,T,B,H,D]. The scores of all rows are summed, and the same weights apply to
 * every row. */
static void tied_rows(attn_context *context)
{
    enum { COLUMN = B * H * D, ROW = T * COLUMN, N = R * ROW };
    static float q[N], k[N], v[N], o[N], expected[N];
    attn_problem problem;
    fill(q, N, 1), fill(k, N, 2), fill(v, N, 3);
    must(context, attn_problem_tied_rows(&problem, R, T, B, H, D));
    run(context, &problem, &(attn_arrays){.q = q, .k = k, .v = v, .o = o});
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int i = 0; i < T; i++) {
                double score[T] = {0};
                int at = (b * H + h) * D;
                for (int r = 0; r < R; r++)
                    for (int j = 0; j < T; j++)
                        score[j] += dot(q + at + r * ROW + i * COLUMN, k + at + r * ROW + j * COLUMN) / sqrt(D * R);
                for (int r = 0; r < R; r++)
                    attend(expected + at + r * ROW + i * COLUMN, score, T, v + at + r * ROW, COLUMN);
            }
    claim(furthest(o, expected, N) < 1e-5, "tied rows of an alignment");
}

int main(void)
{
    attn_context *context = begin();
    heads(context);
    axis(context);
    tied_rows(context);
    attn_context_destroy(context);
    return 0;
}
