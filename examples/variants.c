/* SPDX-License-Identifier: MIT
 *
 * Checks features of newer models against plain loops that follow their definitions: packed sequences, a softcap and
 * sinks, a block mask, a bias through an index, and keys in two parts.
 */
#include "example.h"

enum { H = 2, T = 10, D = 8, QUERY_DIM = 2, KEY_DIM = 3, N = T * H * D };

static float q[N], k[N], v[N], o[N], expected[N];

/* Computes the scores of query i with all keys of head h. If a key is masked, its score is -INFINITY. */
typedef void score_rule(int h, int i, double *score);

static double dot(int h, int i, int j)
{
    double sum = 0;
    for (int c = 0; c < D; c++)
        sum += (double)q[(i * H + h) * D + c] * (double)k[(j * H + h) * D + c];
    return sum / sqrt(D);
}

/* Checks that the output is softmax(score) v. `sink` is NULL, or has one more score for each head, which is a term
 * of the softmax's sum. */
static void expect(score_rule *rule, const float *sink)
{
    for (int h = 0; h < H; h++)
        for (int i = 0; i < T; i++) {
            double score[T], sum = sink ? exp((double)sink[h]) : 0;
            rule(h, i, score);
            for (int j = 0; j < T; j++)
                sum += exp(score[j]);
            for (int c = 0; c < D; c++) {
                double out = 0;
                for (int j = 0; j < T; j++)
                    out += exp(score[j]) / sum * (double)v[(j * H + h) * D + c];
                expected[(i * H + h) * D + c] = (float)out;
            }
        }
}

static attn_problem heads(attn_context *context)
{
    attn_problem problem;
    must(context,
         attn_problem_heads(&problem, &(attn_heads){.batch = 1, .heads = H, .queries = T, .keys = T, .dim = D}));
    return problem;
}

/* ------------------------------------------------------------------------------------ packed sequences */

static const int32_t offsets[] = {0, 3, 3, T};

static void own_sequence(int h, int i, double *score)
{
    int s = i < offsets[1] ? 0 : 2;
    for (int j = 0; j < T; j++)
        score[j] = j >= offsets[s] && j < offsets[s + 1] ? dot(h, i, j) : -INFINITY;
}

static void packed(attn_context *context)
{
    attn_problem problem;
    must(context, attn_problem_heads(&problem, &(attn_heads){.batch = 3,
                                                             .heads = H,
                                                             .queries = 7,
                                                             .keys = 7,
                                                             .dim = D,
                                                             .packed = true,
                                                             .packed_queries = T,
                                                             .packed_keys = T}));
    run(context, &problem, &(attn_arrays){.q = q, .k = k, .v = v, .q_offsets = offsets, .k_offsets = offsets, .o = o});
    expect(own_sequence, NULL);
    claim(furthest(o, expected, N) < 1e-5, "packed sequences");
}

/* --------------------------------------------------------------------------------------- cap and sinks */

static void capped(int h, int i, double *score)
{
    for (int j = 0; j < T; j++)
        score[j] = 0.5 * tanh(dot(h, i, j) / 0.5);
}

static void cap_and_sinks(attn_context *context)
{
    const float sinks[H] = {0.5f, -1};
    attn_problem problem = heads(context);
    problem.softcap = 0.5;
    problem.flags = ATTN_WITH_SINKS;
    problem.dims[1].sinks = 1;
    run(context, &problem, &(attn_arrays){.q = q, .k = k, .v = v, .sinks = sinks, .o = o});
    expect(capped, sinks);
    claim(furthest(o, expected, N) < 1e-5, "capped scores and sinks");
}

/* --------------------------------------------------------------------------------------- mask of blocks */

enum { BLOCK = 4, BLOCKS = (T + BLOCK - 1) / BLOCK };
static const uint8_t there[BLOCKS][BLOCKS] = {{1, 0, 1}, {1, 1, 0}, {0, 0, 1}};

static void blockwise(int h, int i, double *score)
{
    for (int j = 0; j < T; j++)
        score[j] = there[i / BLOCK][j / BLOCK] ? dot(h, i, j) : -INFINITY;
}

static void block_mask(attn_context *context)
{
    attn_problem problem = heads(context);
    problem.flags = ATTN_WITH_BLOCKS;
    problem.blocks = (attn_blocks){.query_dim = QUERY_DIM, .key_dim = KEY_DIM, .queries = BLOCK, .keys = BLOCK};
    /* The stride of the mask along other dims is 0, so all heads use the same mask. */
    problem.dims[QUERY_DIM].blocks = BLOCKS, problem.dims[KEY_DIM].blocks = 1;
    run(context, &problem, &(attn_arrays){.q = q, .k = k, .v = v, .blocks = &there[0][0], .o = o});
    expect(blockwise, NULL);
    claim(furthest(o, expected, N) < 1e-5, "a mask of blocks");
}

/* ------------------------------------------------------------------------------- bias through an index */

enum { ROWS = 5, DISTANCES = 2 * T - 1 };
static float table[ROWS * H];
static int32_t bucket[DISTANCES]; /* bucket[j - i + T - 1] is the table row of distance j - i */

static void biased(int h, int i, double *score)
{
    for (int j = 0; j < T; j++)
        score[j] = dot(h, i, j) + (double)table[bucket[j - i + T - 1] * H + h];
}

/* Tests a bias in which several distances share a row of the table, as in T5. The backward pass computes the table's
 * gradient. */
static void buckets(attn_context *context)
{
    static float lse[H * T], dout[N], dtable[ROWS * H], apart[ROWS * H];
    fill(table, COUNT(table), 4), fill(dout, N, 5);
    for (int d = 0; d < DISTANCES; d++)
        bucket[d] = abs(d - (T - 1)) < ROWS ? abs(d - (T - 1)) : ROWS - 1;
    attn_problem problem = heads(context);
    problem.flags = ATTN_WITH_BIAS | ATTN_WITH_BIAS_INDEX | ATTN_WANT_LSE;
    problem.bias_index = (attn_bias_index){.rows = ROWS, .row_stride = H};
    problem.dims[1].bias = 1; /* stride of the table from head to head */
    /* strides of the index; -1 and 1 give one entry for each distance */
    problem.dims[QUERY_DIM].bias = -1, problem.dims[KEY_DIM].bias = 1;
    attn_arrays arrays = {.q = q, .k = k, .v = v, .bias = table, .bias_index = bucket + T - 1, .o = o, .lse = lse};
    run(context, &problem, &arrays);
    expect(biased, NULL);
    claim(furthest(o, expected, N) < 1e-5, "a bias through an index");

    problem.direction = ATTN_DIRECTION_BACKWARD;
    problem.flags = ATTN_WITH_BIAS | ATTN_WITH_BIAS_INDEX | ATTN_WANT_DBIAS;
    arrays.dout = dout, arrays.dbias = dtable;
    run(context, &problem, &arrays);
    for (int e = 0; e < ROWS * H; e++) { /* The gradient is compared with difference quotients of sum(o * dout). */
        const float step = 1.0f / 64, before = table[e];
        double value[2] = {0, 0};
        for (int side = 0; side < 2; side++) {
            table[e] = before + (side ? step : -step);
            expect(biased, NULL);
            for (int i = 0; i < N; i++)
                value[side] += (double)expected[i] * (double)dout[i];
        }
        table[e] = before;
        apart[e] = (float)((value[1] - value[0]) / (2 * (double)step));
    }
    claim(furthest(dtable, apart, COUNT(apart)) < 1e-3, "the gradient of its table");
}

/* ---------------------------------------------------------------------------------------- keys in parts */

static void all_keys(int h, int i, double *score)
{
    for (int j = 0; j < T; j++)
        score[j] = dot(h, i, j);
}

static void parts(attn_context *context)
{
    enum { FIRST = 4 };
    static float o2[N], lse[H * T], lse2[H * T];
    attn_problem problem = heads(context);
    problem.flags = ATTN_WANT_LSE;
    problem.dims[KEY_DIM].n = FIRST;
    run(context, &problem, &(attn_arrays){.q = q, .k = k, .v = v, .o = o, .lse = lse});
    problem.dims[KEY_DIM].n = T - FIRST;
    run(context, &problem,
        &(attn_arrays){.q = q, .k = k + FIRST * H * D, .v = v + FIRST * H * D, .o = o2, .lse = lse2});
    must(context, attn_partials_merge(context, &(attn_partials){.batch = 1, .heads = H, .queries = T, .dim = D}, o, lse,
                                      o2, lse2, o, lse));
    expect(all_keys, NULL);
    claim(furthest(o, expected, N) < 1e-5, "keys in two parts, merged");
}

int main(void)
{
    fill(q, N, 1), fill(k, N, 2), fill(v, N, 3);
    attn_context *context = begin();
    packed(context);
    cap_and_sinks(context);
    block_mask(context);
    buckets(context);
    parts(context);
    attn_context_destroy(context);
    return 0;
}
