/* SPDX-License-Identifier: MIT */
#include "support/attention_cases.h"

#include "support/context.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { MOST_LINES = 20 };

attn_context *hostile_context;

int hostile_open_context(void **state)
{
    (void)state;
    return attn_context_create(&hostile_context, &(attn_context_options){.threads = 2}) != ATTN_OK;
}

int hostile_close_context(void **state)
{
    (void)state;
    return close_context_of_tests(hostile_context);
}

/* ------------------------------------------------------------------------------------------------ cases */

int64_t hostile_choose(const attention *a, uint64_t salt, int64_t n)
{
    return hostile_pick(a->number, salt, n);
}

static attn_heads draw_heads(const attention *a, int64_t most)
{
    static const int64_t dims[] = {8, 16, 24, 32, 40, 48, 64, 64, 64, 72, 80, 96, 128, 128, 160, 192, 256};
    static const int64_t lengths[] = {1, 2, 15, 16, 17, 31, 64, 65, 127, 128, 129, 192, 197, 255, 256, 257, 300};
    attn_heads h = {.batch = 1 + hostile_choose(a, 1, 2),
                    .heads = 1 + hostile_choose(a, 2, 2),
                    .dim = dims[hostile_choose(a, 3, 17)]};
    h.queries = hostile_choose(a, 4, 2) ? lengths[hostile_choose(a, 5, 17)] : 1 + hostile_choose(a, 6, 300);
    h.keys = hostile_choose(a, 7, 3) ? h.queries : 1 + hostile_choose(a, 8, 300);
    h.queries = h.queries < most ? h.queries : most;
    h.keys = h.keys < most ? h.keys : most;
    h.layout = hostile_choose(a, 9, 2) ? ATTN_LAYOUT_BTHD : ATTN_LAYOUT_BHTD;
    h.causal = hostile_choose(a, 10, 3) == 0 ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_NONE;
    if (h.causal && h.keys >= h.queries && hostile_choose(a, 11, 2))
        h.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    return h;
}

static const attn_dim *dim_of(const attn_problem *p, attn_role role)
{
    for (int i = p->ndims - 1; i >= 0; i--)
        if (p->dims[i].role == role)
            return &p->dims[i];
    return NULL;
}

/* Scores are unscaled dot products, unless the case sets a scale. */
void hostile_open(attention *a, uint64_t number, int64_t most, unsigned with)
{
    *a = (attention){.number = number};
    a->heads = draw_heads(a, most);
    attn_problem *p = &a->r.forward;
    assert_int_equal(attn_problem_heads(p, &a->heads), ATTN_OK);
    p->scale = 1;
    p->flags |= ATTN_WANT_LSE | with;
    a->r.number = number;
    a->r.backward = *p;
    a->r.backward.direction = ATTN_DIRECTION_BACKWARD;
    a->r.backward.flags = (p->flags & ~(unsigned)ATTN_WANT_WEIGHTS) | ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV;
    random_problem_arrays(&a->r, number);
    a->batch = &p->dims[0];
    a->head = &p->dims[1];
    a->query = dim_of(p, ATTN_ROLE_QUERY);
    a->key = dim_of(p, ATTN_ROLE_KEY);
    a->channel = dim_of(p, ATTN_ROLE_CONTRACT);
    a->value = dim_of(p, ATTN_ROLE_VALUE);
}

float *hostile_floats_of(const attention *a, array_id id)
{
    return a->r.array[id].block;
}

float *hostile_query(const attention *a, int64_t b, int64_t h, int64_t i)
{
    return hostile_floats_of(a, ARRAY_Q) + b * a->batch->q + h * a->head->q + i * a->query->q;
}

float *hostile_key(const attention *a, int64_t b, int64_t h, int64_t j)
{
    return hostile_floats_of(a, ARRAY_K) + b * a->batch->k + h * a->head->k + j * a->key->k;
}

float *hostile_token(const attention *a, array_id id, int64_t b, int64_t h, int64_t j)
{
    return hostile_floats_of(a, id) + b * a->batch->v + h * a->head->v + j * a->key->v;
}

float *hostile_output(const attention *a, array_id id, int64_t b, int64_t h, int64_t i)
{
    return hostile_floats_of(a, id) + b * a->batch->o + h * a->head->o + i * a->query->o;
}

int64_t hostile_keys_of(const attention *a, int64_t i)
{
    const int64_t shift = a->heads.causal == ATTN_CAUSAL_BOTTOM_RIGHT ? a->heads.keys - a->heads.queries : 0;
    const int64_t last = a->heads.causal ? i + shift + 1 : a->heads.keys;
    return last < a->heads.keys ? last : a->heads.keys;
}

double hostile_score(const attention *a, const float *q, const float *k, double *size)
{
    double sum = 0;
    *size = 0;
    for (int64_t c = 0; c < a->heads.dim; c++) {
        sum += (double)q[c] * (double)k[c];
        *size += fabs((double)q[c] * (double)k[c]);
    }
    return sum;
}

double hostile_largest_size(const attention *a)
{
    double most = 0, size;
    for (int64_t n = 0; n < a->heads.batch * a->heads.heads * a->heads.queries; n++) {
        const int64_t i = n % a->heads.queries, bh = n / a->heads.queries;
        const int64_t b = bh / a->heads.heads, h = bh % a->heads.heads;
        for (int64_t j = 0; j < a->heads.keys; j++) {
            hostile_score(a, hostile_query(a, b, h, i), hostile_key(a, b, h, j), &size);
            most = fmax(most, size);
        }
    }
    return most;
}

static void multiply(const attention *a, array_id id, double by)
{
    for (int64_t i = 0; i < a->r.array[id].n; i++)
        hostile_floats_of(a, id)[i] = (float)((double)hostile_floats_of(a, id)[i] * by);
}

/* Scales q, k or both, so that the largest sum of absolute values of a score's terms becomes `size`. */
void hostile_scale_scores(attention *a, double size, int where)
{
    static const double shares[] = {0.5, 0, 1};
    const double whole = size / hostile_largest_size(a), of_q = pow(whole, shares[where]);
    a->size = size;
    multiply(a, ARRAY_Q, of_q);
    multiply(a, ARRAY_K, whole / of_q);
}

double hostile_draw_size(const attention *a)
{
    static const double sizes[] = {10, 1e3, 1e5, 1e9, 1e12, 1e15, 1e20, 1e25, 1e30, 1e36, (double)FLT_MAX / 4};
    return sizes[hostile_choose(a, 20, 11)];
}

static struct {
    int64_t failures;
    uint64_t number;
    const char *solver;
} last;

void hostile_complain(const attention *a, const char *solver, const char *what, int64_t at, double got, double want)
{
    char text[400];
    if (last.failures && last.number == a->number && last.solver == solver)
        return;
    last.number = a->number;
    last.solver = solver;
    if (last.failures++ >= MOST_LINES)
        return;
    random_problem_describe(&a->r, text, sizeof text);
    print_error("ATTN_ISA=%s ATTN_HOSTILE_CASE=%" PRIu64 " %s, scores of %.3g, solver %s: %s, element %" PRId64
                ", is %.9g, not %.9g\n",
                attn_context_isa(hostile_context), a->number, text, a->size, solver, what, at, got, want);
}

void hostile_assert_finite(const attention *a, const char *solver, array_id id, const char *what)
{
    for (int64_t i = 0; i < a->r.array[id].n; i++)
        if (!isfinite(hostile_floats_of(a, id)[i]))
            hostile_complain(a, solver, what, i, (double)hostile_floats_of(a, id)[i], 0);
}

void hostile_assert_near(const attention *a, const char *solver, const char *what, int64_t at, double got, double want,
                         double bound)
{
    if (!(fabs(got - want) <= bound))
        hostile_complain(a, solver, what, at, got, want);
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

uint64_t hostile_range(uint64_t usual, uint64_t *first)
{
    *first = number_of("ATTN_HOSTILE_CASE", number_of("ATTN_HOSTILE_SEED", 0) * 100003);
    return getenv("ATTN_HOSTILE_CASE") ? 1 : usual * number_of("ATTN_HOSTILE_PERCENT", 100) / 100;
}

void hostile_end(void)
{
    const int64_t failures = last.failures;
    last.failures = 0;
    if (failures)
        fail_msg("%" PRId64 " times a solver was wrong", failures);
}

void hostile_prepare_backward(attention *a)
{
    attn_problem p = a->r.forward;
    p.flags &= ~(unsigned)ATTN_WANT_WEIGHTS;
    solver_run(hostile_context, NULL, 0, &p, &a->r.arrays);
}

double hostile_rounding(const attention *a)
{
    return fmax(1e-6, (double)(a->heads.keys + 8) * 0x1p-23);
}

double hostile_slack(const attention *a)
{
    return 2 * (double)(a->heads.dim + 8) * 0x1p-24 * a->size;
}
