/* SPDX-License-Identifier: MIT
 *
 * attn.h: softmax attention of two heads, next to the same attention in three loops. */
#include <attn/attn.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static attn_context *context;
#define CHECK(condition)                                                                                               \
    ((condition) ? (void)0 : (printf("line %d: %s: %s\n", __LINE__, #condition, attn_context_error(context)), exit(1)))

enum { QUERIES = 3, KEYS = 5, HEADS = 2, DIM = 4 };

/* Computes the weights of one query and the output from them. */
static void naive(const float *q, float k[KEYS][HEADS][DIM], float v[KEYS][HEADS][DIM], int head, double weights[KEYS],
                  double o[DIM])
{
    double sum = 0;
    for (int j = 0; j < KEYS; j++) {
        double score = 0;
        for (int c = 0; c < DIM; c++)
            score += (double)q[c] * k[j][head][c];
        sum += weights[j] = exp(score / sqrt(DIM));
    }
    for (int c = 0; c < DIM; c++)
        o[c] = 0;
    for (int j = 0; j < KEYS; j++) {
        weights[j] /= sum;
        for (int c = 0; c < DIM; c++)
            o[c] += weights[j] * v[j][head][c];
    }
}

int main(void)
{
    float q[QUERIES][HEADS][DIM], k[KEYS][HEADS][DIM], v[KEYS][HEADS][DIM];
    float o[QUERIES][HEADS][DIM], weights[HEADS][QUERIES][KEYS];
    for (int i = 0; i < QUERIES * HEADS * DIM; i++)
        (&q[0][0][0])[i] = (float)sin(i);
    for (int i = 0; i < KEYS * HEADS * DIM; i++) {
        (&k[0][0][0])[i] = (float)cos(3 * i);
        (&v[0][0][0])[i] = (float)sin(5 * i);
    }
    CHECK(attn_context_create(&context, NULL) == ATTN_OK);

    /* The problem, a plan for it, and one execution; [token, head, channel] is the layout BTHD of one batch. */
    attn_problem problem;
    attn_heads heads = {.batch = 1, .heads = HEADS, .queries = QUERIES, .keys = KEYS, .dim = DIM};
    CHECK(attn_problem_heads(&problem, &heads) == ATTN_OK);
    problem.flags |= ATTN_WANT_WEIGHTS;
    attn_plan *plan;
    CHECK(attn_plan_create(&plan, context, &problem, NULL) == ATTN_OK);
    attn_arrays arrays = {.q = q, .k = k, .v = v, .o = o, .weights = weights};
    CHECK(attn_plan_execute(plan, &arrays, NULL) == ATTN_OK);
    for (int i = 0; i < QUERIES; i++)
        for (int h = 0; h < HEADS; h++) {
            double expected_weights[KEYS], expected[DIM], sum = 0;
            naive(q[i][h], k, v, h, expected_weights, expected);
            for (int j = 0; j < KEYS; j++) {
                CHECK(fabs(weights[h][i][j] - expected_weights[j]) < 1e-6);
                sum += weights[h][i][j];
            }
            CHECK(fabs(sum - 1) < 1e-6);
            for (int c = 0; c < DIM; c++)
                CHECK(fabs(o[i][h][c] - expected[c]) < 1e-6);
        }

    /* Bad input gives a status and a message: a missing array, and heads that do not divide. */
    arrays.k = NULL;
    CHECK(attn_plan_execute(plan, &arrays, NULL) == ATTN_ERROR_ARGUMENT);
    CHECK(strlen(attn_context_error(context)) > 0);
    heads.kv_heads = 3;
    CHECK(attn_problem_heads(&problem, &heads) == ATTN_ERROR_SHAPE);
    printf("attn %s: solver %s; %s\n", attn_version(), attn_plan_solver(plan), attn_context_error(NULL));
    attn_plan_destroy(plan);
    attn_context_destroy(context);
    return 0;
}
