/* SPDX-License-Identifier: MIT
 *
 * Compares forward attention on AMX with the vector units. The results must agree for odd sizes, and for numbers that
 * three bf16 parts cannot represent (infinity, NaN, numbers above the largest bf16), visible or masked. The plan must
 * name AMX. Results must have the same bits for any number of threads. The test is skipped on a machine
 * without AMX.
 */
#include "support/cmocka.h"

#include "attn/attn.h"
#include "base/cpu.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct sample {
    attn_heads heads;
    attn_problem problem;
    int64_t q, k, v, o;
    float *data[4]; /* q, k, v, o */
    uint8_t *mask;
    attn_arrays arrays;
} sample;

static float *random_numbers(attn__rng *rng, int64_t n)
{
    float *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)attn__rng_normal(rng);
    return x;
}

/* Makes a problem with one head, so that row r of an operand begins at r * dim. */
static sample make_sample(int64_t queries, int64_t keys, int64_t dim)
{
    attn__rng rng = {.seed = 11};
    sample s = {.heads = {.batch = 1, .heads = 1, .queries = queries, .keys = keys, .dim = dim, .key_padding = true},
                .q = queries * dim,
                .k = keys * dim,
                .v = keys * dim,
                .o = queries * dim};
    assert_int_equal(attn_problem_heads(&s.problem, &s.heads), ATTN_OK);
    s.data[0] = random_numbers(&rng, s.q);
    s.data[1] = random_numbers(&rng, s.k);
    s.data[2] = random_numbers(&rng, s.v);
    s.data[3] = random_numbers(&rng, s.o);
    s.mask = malloc((size_t)keys);
    memset(s.mask, 1, (size_t)keys);
    s.arrays = (attn_arrays){.q = s.data[0], .k = s.data[1], .v = s.data[2], .o = s.data[3], .mask = s.mask};
    return s;
}

static void free_sample(sample *s)
{
    for (int i = 0; i < 4; i++)
        free(s->data[i]);
    free(s->mask);
}

static void solve(sample *s, const char *isa, const char *solver, int threads, float *out)
{
    attn_context *c;
    attn_plan *plan;
    char text[1024];
    assert_int_equal(attn_context_create(&c, &(attn_context_options){.isa = isa, .threads = 7}), ATTN_OK);
    assert_int_equal(
        attn_plan_create(&plan, c, &s->problem, &(attn_plan_options){.solver = solver, .threads = threads}), ATTN_OK);
    attn_plan_describe(plan, false, text, sizeof text);
    bool wide = strcmp(solver, "wide") == 0;
    bool parts = strcmp(isa, "amx") == 0 && (!wide || s->heads.dim % 32 == 0);
    assert_int_equal(strstr(text, "bf16 terms") != NULL, parts);
    assert_int_equal(attn_plan_execute(plan, &s->arrays, NULL), ATTN_OK);
    memcpy(out, s->arrays.o, (size_t)s->o * sizeof *out);
    attn_plan_destroy(plan);
    attn_context_destroy(c);
}

/* The bound covers the rounding of scores below 64. It covers outputs that are means of values below 8, or that are
 * dominated by one much larger value. */
static void compare(const float *got, const float *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float most = 0x1p-16f * fmaxf(1, fabsf(want[i]));
        bool same = isnan(want[i]) ? isnan(got[i]) : got[i] == want[i] || fabsf(got[i] - want[i]) <= most;
        if (!same)
            fail_msg("element %d is %g, not %g", (int)i, (double)got[i], (double)want[i]);
    }
}

static void check(sample *s)
{
    static const char *const solvers[] = {"flash", "wide"};
    static const int threads[] = {2, 3, 7};
    float *want = malloc((size_t)s->o * sizeof *want), *got = malloc((size_t)s->o * sizeof *got);
    float *again = malloc((size_t)s->o * sizeof *again);
    for (int i = 0; i < 2; i++) {
        solve(s, "avx512", solvers[i], 1, want);
        solve(s, "amx", solvers[i], 1, got);
        compare(got, want, s->o);
        for (int t = 0; t < 3; t++) {
            solve(s, "amx", solvers[i], threads[t], again);
            assert_memory_equal(got, again, (size_t)s->o * sizeof *got);
        }
    }
    free(want);
    free(got);
    free(again);
}

static void need_the_unit(void)
{
    if (!attn__isa_runs_here(ATTN_ISA_AMX)) {
        print_message("this machine has no AMX\n");
        skip();
    }
}

static void odd_sizes_agree(void **state)
{
    (void)state;
    need_the_unit();
    static const int64_t sizes[][3] = {{385, 31, 30},   {211, 65, 64}, {390, 300, 49}, {801, 96, 47},
                                       {193, 520, 129}, {301, 75, 96}, {210, 531, 160}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        sample s = make_sample(sizes[i][0], sizes[i][1], sizes[i][2]);
        s.mask[sizes[i][1] / 2] = 0;
        check(&s);
        free_sample(&s);
    }
}

static void what_is_not_finite_takes_the_other_way(void **state)
{
    (void)state;
    need_the_unit();
    static const float odd[] = {INFINITY, -INFINITY, NAN, 3.4e38f};
    enum { QUERIES = 262, KEYS = 530, DIM = 64 };
    for (int operand = 0; operand < 3; operand++) {
        for (int i = 0; i < 4; i++) {
            sample s = make_sample(QUERIES, KEYS, DIM);
            s.data[operand][37 * DIM + 5] = odd[i];
            check(&s);
            if (operand > 0) {
                s.mask[37] = 0;
                check(&s);
                for (int64_t o = 0; o < s.o; o++)
                    assert_true(isfinite(s.data[3][o]));
            }
            free_sample(&s);
        }
    }
}

static void set_row(sample *s, int operand, int64_t dim, float number, bool all)
{
    for (int64_t c = all ? 0 : 5; c < (all ? dim : 6); c++)
        s->data[operand][37 * dim + c] = number;
}

/* Tests one special row of queries or keys. All its numbers are zero or too small for fixed-point digits, or one number
 * is large, tiny, infinite or NaN. There are one or several blocks of keys. */
static void rows_that_digits_cannot_hold_take_parts(void **state)
{
    (void)state;
    need_the_unit();
    static const float single[] = {60, -60, 0x1p-130f, INFINITY, NAN}, whole[] = {0, 1e-42f, 1e-30f, 0x1p-61f};
    static const int64_t sizes[][3] = {{262, 197, 64}, {262, 200, 48}, {130, 530, 130}};
    enum { SINGLE = sizeof single / sizeof *single, WHOLE = sizeof whole / sizeof *whole };
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        for (int i = 0; i < 2 * (SINGLE + WHOLE); i++) {
            int operand = i % 2, which = i / 2;
            sample s = make_sample(sizes[n][0], sizes[n][1], sizes[n][2]);
            set_row(&s, operand, sizes[n][2], which < SINGLE ? single[which] : whole[which - SINGLE], which >= SINGLE);
            check(&s);
            if (operand == 1) {
                s.mask[37] = 0;
                check(&s);
            }
            free_sample(&s);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_sizes_agree),
        cmocka_unit_test(what_is_not_finite_takes_the_other_way),
        cmocka_unit_test(rows_that_digits_cannot_hold_take_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
