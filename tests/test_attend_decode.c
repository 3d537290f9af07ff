/* SPDX-License-Identifier: MIT
 * labels: no-tsan
 *
 * Compares the solver decode with the float64 evaluation, for a few queries over many keys. It runs with each feature
 * and with all features, over more keys than a block or a part has. Keys and values that no query reads are NaN.
 */
#include "support/context.h"

#include "support/solver_check.h"

#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

CONTEXT_OF_TESTS(.threads = 2)

static void parse(attn_problem *p, const char *text, attn_direction direction)
{
    if (attn_problem_parse(p, context, text, direction) != ATTN_OK)
        fail_msg("%s: %s", text, attn_context_error(context));
}

/* Checks that decode accepts the problem and is correct. decode_backward must accept the problem if and only if
 * `backward` is true. */
static void check(const char *shape, const char *features, bool bf16, bool backward)
{
    static uint64_t number;
    random_problem r = {.number = ++number};
    truth t;
    char text[200];
    double worst = 0;
    snprintf(text, sizeof text, "%s:%s%s", shape, features, bf16 ? ",bf16" : "");
    parse(&r.forward, text, ATTN_DIRECTION_FORWARD);
    parse(&r.backward, text, ATTN_DIRECTION_BACKWARD);
    r.forward.flags |= ATTN_WANT_LSE;
    random_problem_arrays(&r, number);
    truth_make(&t, &r);
    if (!solver_check(context, "decode", &r, &t, ATTN_DIRECTION_FORWARD, &worst))
        fail_msg("%s: %s", text, attn_context_error(context));
    if (number % 4 == 0)
        solver_check_threads(context, "decode", &r, ATTN_DIRECTION_FORWARD);
    solver_prepare_backward(context, &r);
    bool taken = solver_check(context, "decode_backward", &r, &t, ATTN_DIRECTION_BACKWARD, &worst);
    if (taken != backward)
        fail_msg("%s: decode_backward %s it", text, taken ? "takes" : "refuses");
    if (taken && number % 4 == 0)
        solver_check_threads(context, "decode_backward", &r, ATTN_DIRECTION_BACKWARD);
    attn_context_clear_error(context);
    truth_free(&t, &r);
    random_problem_free(&r);
}

static const char *const shapes[] = {"b2h3q1k300d24", "b1h32q1k600d16:bthd", "b1h2q5k333d40v9:bhtd", "b3h8g2q4k130d32"};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void every_feature_is_what_the_evaluation_says(void **state)
{
    static const struct {
        const char *text;
        bool backward;
    } features[] = {
        {"lse", true},
        {"softcap=2", true},
        {"sinks", true},
        {"dlse", true},
        {"mask", true},
        {"pad", true},
        {"blocks=16", true},
        {"blocks=100", true},
        {"lens", true},
        {"lensq", true},
        {"band=3..90", true},
        {"causal-br", true},
        {"dropout=0.4", true},
        {"lens,fill=-2", true},
        {"mask,fill=-3000", true},
        {"pad,dropout=0.3,fill=-1e6", true},
        {"bias", true},
        {"bias,softcap=3", true},
        {"biask,mask", false},
        {"softcap=3,sinks,lens,mask,blocks=16,bias,dropout=0.2,dlse", true},
        {"softcap=3,mask,bias,dropout=0.2,fill=-2,dlse", true},
    };
    (void)state;
    for (int shape = 0; shape < SHAPES; shape++)
        for (size_t i = 0; i < sizeof features / sizeof *features; i++)
            for (int bf16 = 0; bf16 < 2; bf16++)
                check(shapes[shape], features[i].text, bf16, features[i].backward);
}

/* ------------------------------------------------------------------------------------------ packed sequences */

enum { SEQUENCES = 4, HEADS = 4, DIM = 16, ROW = HEADS * DIM, QUERIES = 9, KEYS = 470 };
static const int32_t q_offsets[SEQUENCES + 1] = {0, 1, 6, 6, 9}, k_offsets[SEQUENCES + 1] = {0, 150, 150, 290, KEYS};

typedef struct tokens {
    float q[QUERIES * ROW], dout[QUERIES * ROW], k[KEYS * ROW], v[KEYS * ROW], sinks[HEADS], dlse[HEADS * QUERIES];
    float o[QUERIES * ROW], lse[HEADS * QUERIES], dq[QUERIES * ROW], dk[KEYS * ROW], dv[KEYS * ROW];
} tokens;

static void fill(float *x, int64_t n, uint64_t stream)
{
    attn__rng g = {.seed = 41, .stream = stream};
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)attn__rng_normal(&g);
}

/* Runs both passes, with queries from token `q` on and keys from token `k` on. */
static void run_both(tokens *t, const attn_heads *heads, int64_t q, int64_t k)
{
    attn_problem p;
    attn_arrays a = {.q = t->q + q * ROW, .k = t->k + k * ROW, .v = t->v + k * ROW, .sinks = t->sinks};
    a.o = t->o + q * ROW, a.lse = t->lse, a.dout = t->dout + q * ROW, a.dlse = t->dlse;
    a.dq = t->dq + q * ROW, a.dk = t->dk + k * ROW, a.dv = t->dv + k * ROW;
    a.q_offsets = q_offsets, a.k_offsets = k_offsets;
    assert_int_equal(attn_problem_heads(&p, heads), ATTN_OK);
    p.softcap = 3;
    p.flags |= ATTN_WANT_LSE | ATTN_WITH_SINKS;
    for (int i = 0; i < p.ndims; i++) {
        p.dims[i].sinks = i == 1;
        if (p.dims[i].role == ATTN_ROLE_BATCH && i == 1)
            p.dims[i].lse = QUERIES;
    }
    assert_true(solver_run(context, "decode", 2, &p, &a));
    p.direction = ATTN_DIRECTION_BACKWARD;
    p.flags |= ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV | ATTN_WITH_DLSE;
    p.flags &= ~(unsigned)ATTN_WANT_LSE;
    assert_true(solver_run(context, "decode_backward", 2, &p, &a));
}

/* Some sequences have no keys or no queries. */
static void packed_sequences_have_the_bits_that_they_have_alone(void **state)
{
    static tokens packed, alone;
    (void)state;
    fill(packed.q, QUERIES * ROW, 1), fill(packed.dout, QUERIES * ROW, 2), fill(packed.k, KEYS * ROW, 3);
    fill(packed.v, KEYS * ROW, 4), fill(packed.sinks, HEADS, 5), fill(packed.dlse, HEADS * QUERIES, 6);
    alone = packed;
    attn_heads heads = {.batch = SEQUENCES,
                        .heads = HEADS,
                        .queries = 5,
                        .keys = 200,
                        .dim = DIM,
                        .packed = true,
                        .packed_queries = QUERIES,
                        .packed_keys = KEYS};
    run_both(&packed, &heads, 0, 0);
    for (int s = 0; s < SEQUENCES; s++) {
        int64_t q = q_offsets[s], k = k_offsets[s], nq = q_offsets[s + 1] - q, nk = k_offsets[s + 1] - k;
        for (int h = 0; h < HEADS; h++)
            for (int64_t i = 0; i < nq; i++)
                alone.dlse[h * QUERIES + i] = packed.dlse[h * QUERIES + q + i];
        if (nq > 0 && nk > 0)
            run_both(&alone, &(attn_heads){.batch = 1, .heads = HEADS, .queries = nq, .keys = nk, .dim = DIM}, q, k);
        for (int h = 0; h < HEADS && nk > 0; h++)
            assert_memory_equal(alone.lse + h * QUERIES, packed.lse + h * QUERIES + q, (size_t)nq * sizeof(float));
    }
    assert_memory_equal(alone.o, packed.o, sizeof packed.o);
    assert_memory_equal(alone.dq, packed.dq, sizeof packed.dq);
    assert_memory_equal(alone.dk, packed.dk, sizeof packed.dk);
    assert_memory_equal(alone.dv, packed.dv, sizeof packed.dv);
    for (int h = 0; h < HEADS; h++)
        assert_true(fabsf(packed.lse[h * QUERIES + 1] - packed.sinks[h]) < 1e-6f);
}

/* -------------------------------------------------------------------------------------------- the planner */

static void planner_takes(const char *text, const char *solver)
{
    attn_problem p;
    attn_plan *plan;
    parse(&p, text, ATTN_DIRECTION_FORWARD);
    assert_int_equal(attn_plan_create(&plan, context, &p, NULL), ATTN_OK);
    if (strcmp(attn_plan_solver(plan), solver) != 0)
        fail_msg("%s runs by %s", text, attn_plan_solver(plan));
    attn_plan_destroy(plan);
}

/* For one query, the planner chooses decode, whatever the features. It does not choose decode for packed sequences
 * with more queries, because then the longest sequence would change the bits of the others. */
static void one_query_is_decoded_with_any_feature(void **state)
{
    (void)state;
    static const char *const features[] = {"lse",  "softcap=30", "sinks", "bias",
                                           "mask", "blocks=64",  "lens",  "dropout=0.1"};
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        char text[80];
        snprintf(text, sizeof text, "b1h32q1k4096d128:%s", features[i]);
        planner_takes(text, "decode");
    }
    planner_takes("b6h8q1k4096d128:packed=6", "decode");
    planner_takes("b6h8q2k4096d128:packed=12", "flash");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_feature_is_what_the_evaluation_says),
        cmocka_unit_test(packed_sequences_have_the_bits_that_they_have_alone),
        cmocka_unit_test(one_query_is_decoded_with_any_feature),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}
