/* SPDX-License-Identifier: MIT
 *
 * attention_cases.h - multi-head problems that are derived from a case number: 1 to 300 tokens, heads of 8 to 256
 * channels, causal or not, two layouts, scores of any size. A failure prints one line, and the test continues until
 * hostile_end.
 */
#ifndef ATTN_TESTS_ATTENTION_CASES_H
#define ATTN_TESTS_ATTENTION_CASES_H

#include "support/cmocka.h"
#include "support/hostile_values.h"
#include "support/solver_check.h"

typedef struct attention {
    uint64_t number;
    double size; /* largest sum of the absolute values of a score's terms */
    attn_heads heads;
    random_problem r;
    const attn_dim *batch, *head, *query, *key, *channel, *value;
} attention;

extern attn_context *hostile_context;
int hostile_open_context(void **state);
int hostile_close_context(void **state);

/* Returns the number of cases to run. *first is the number of the first case. ATTN_HOSTILE_SEED selects other cases,
 * and ATTN_HOSTILE_CASE a single case. */
uint64_t hostile_range(uint64_t usual, uint64_t *first);
void hostile_end(void);

/* Makes a problem with at most `most` tokens. Its scores are unscaled dot products with absolute values of about 16.
 * The caller frees it with random_problem_free. */
void hostile_open(attention *a, uint64_t number, int64_t most, unsigned with);
int64_t hostile_choose(const attention *a, uint64_t salt, int64_t n);
/* Returns a size from 10 to a quarter of the largest f32. */
double hostile_draw_size(const attention *a);
/* Scales q, k or both, as `where` selects, so that the largest sum of absolute values of a score's terms becomes
 * `size`. */
void hostile_scale_scores(attention *a, double size, int where);
/* Computes the log-sum-exp and output for a backward pass, with the solver that the planner chooses. */
void hostile_prepare_backward(attention *a);

float *hostile_floats_of(const attention *a, array_id id);
float *hostile_query(const attention *a, int64_t b, int64_t h, int64_t i);
float *hostile_key(const attention *a, int64_t b, int64_t h, int64_t j);
float *hostile_token(const attention *a, array_id id, int64_t b, int64_t h, int64_t j);
float *hostile_output(const attention *a, array_id id, int64_t b, int64_t h, int64_t i);
int64_t hostile_keys_of(const attention *a, int64_t i);
/* Returns a score in double precision. Sets *size to the sum of absolute values of its terms. */
double hostile_score(const attention *a, const float *q, const float *k, double *size);
double hostile_largest_size(const attention *a);

/* Return the error that is allowed for a sum of weights, and the relative error of a weight that is computed from a
 * rounded score. */
double hostile_rounding(const attention *a);
double hostile_slack(const attention *a);

void hostile_complain(const attention *a, const char *solver, const char *what, int64_t at, double got, double want);
void hostile_assert_finite(const attention *a, const char *solver, array_id id, const char *what);
void hostile_assert_near(const attention *a, const char *solver, const char *what, int64_t at, double got, double want,
                         double bound);

#endif
