/* SPDX-License-Identifier: MIT
 * labels: no-tsan
 *
 * Tests NaN and infinity in float64 attention by the solver `blocked`. In a number that no query reads, they have no
 * effect. In any other number, they reach exactly the outputs that the formulas predict.
 */
#include "support/cmocka.h"

#include "support/attend_exact.h"
#include "support/f64_cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(cases) (sizeof(cases) / sizeof *(cases))

static const f64_grid sparse = {.axes = 1, .n = {6}, .taps = {2}, .heads = 1, .channels = 3, .step = 4};
static const f64_grid near = {.axes = 1, .n = {40}, .taps = {5}, .heads = 1, .channels = 4, .dilation = 2};
static const f64_grid moved_in = {
    .axes = 1, .n = {12}, .taps = {5}, .heads = 1, .channels = 3, .border = ATTN_BORDER_SHIFT};
static const f64_grid zeros = {
    .axes = 1, .n = {9}, .taps = {3}, .heads = 1, .channels = 3, .border = ATTN_BORDER_ZERO, .step = 3};
static const f64_case hostile[] = {
    {.text = "b1h1q9k11d3:f64,causal", .add = F64_TABLES},
    {.text = "b1h1q70k75d3:f64,causal-br,dlse"},
    {.text = "b1h1q9k11d4:f64,mask,bias,dlse", .add = F64_TABLES},
    {.text = "b1h1q9k11d4:f64,band=-1..1", .add = F64_TABLES | F64_RANGES},
    {.text = "b1h1q9k11d4:f64,lens,softcap=2,sinks", .add = F64_TABLES},
    {.text = "b1h1q12k13d3:f64,blocks=3", .add = F64_TABLES},
    {.text = "b1h1q9k11d3:f64,causal,fill=-2", .add = F64_TABLES},
    {.text = "b1h1q9k11d3:f64,causal,fill=-1000000", .add = F64_VALUE_TABLE},
    {.text = "b1h1q9k11d3:f64,additive,causal", .add = F64_TABLES},
    {.text = "b1h1q9k11d3:f64,additive,mask"},
    {.text = "b1h1q9k11d3:f64,concat,causal", .add = F64_QUERY_TABLE},
    {.text = "b1h1q9k11d3:f64,concat,lens"},
    {.text = "b1h1q9k11d3:f64,gaussian,mask", .width = 3},
    {.text = "b1h1q9k11d3:f64,triangular,causal", .width = 4, .add = F64_TABLES},
    {.text = "b1h1q9k11d3:f64,boxcar,mask", .width = 3},
    {.text = "b1h1q9k11d3:f64,over-n,causal", .add = F64_TABLES},
    {.text = "b1h1q9k11d3:f64,triangular,kernel-sum,mask", .width = 6},
    {.text = "b1h1q9k11d3:f64,none,causal", .add = F64_TABLES},
    {.text = "b1h1q9k11d3:f64,hardmax,causal", .add = F64_TABLES},
    {.text = "b1h1q9k11d3:f64,topk=3,mask,dlse", .add = F64_TABLES},
    {.text = "b1h1q9k11d3:f64,topk=3,mask,fill=-2", .add = F64_VALUE_TABLE},
    {.text = "b4h1q7k6d3:f64,packed=22,causal"},
    {.grid = &sparse, .add = F64_TABLES},
    {.grid = &sparse, .score = ATTN_SCORE_ADDITIVE},
    {.grid = &near, .add = F64_TABLES | F64_RANGES},
    {.grid = &near, .add = F64_PLACES | F64_BAND | F64_TABLES},
    {.grid = &near, .score = ATTN_SCORE_CONCAT},
    {.grid = &near, .score = ATTN_SCORE_GAUSSIAN, .add = F64_PLACES},
    {.grid = &moved_in, .add = F64_TABLES | F64_PLACES},
    {.grid = &moved_in, .score = ATTN_SCORE_TRIANGULAR, .width = 5},
    {.grid = &zeros, .add = F64_TABLES | F64_BIAS},
};

/* Exact and computed results, each with and without one poisoned number. */
typedef struct poisoning {
    const f64_case *c;
    random_problem r;
    attend_exact_arrays clean, exact;
    double *was[ARRAY_COUNT];
} poisoning;

static void *room(size_t bytes)
{
    void *x = calloc(bytes + 1, 1);
    if (!x)
        fail_msg("no memory");
    return x;
}

static void evaluate(poisoning *x, attend_exact_arrays *to)
{
    size_t rows = (size_t)x->r.array[ARRAY_LSE].n, numbers = (size_t)x->r.array[ARRAY_O].n;
    memset(to->o, 0, numbers * sizeof *to->o);
    memset(to->lse, 0, rows * sizeof *to->lse);
    memset(to->sees, 0, rows * (size_t)to->positions);
    attend_exact(&x->r.forward, &x->r.arrays, to);
}

static void run_both(poisoning *x)
{
    random_problem_poison(&x->r);
    if (f64_run(f64_context, &x->r.forward, &x->r.arrays, x->c))
        f64_run(f64_context, &x->r.backward, &x->r.arrays, x->c);
}

static void open_poisoning(poisoning *x, const f64_case *c)
{
    attend_exact_arrays *both[] = {&x->clean, &x->exact};
    memset(x, 0, sizeof *x);
    x->c = c;
    f64_make(&x->r, c);
    for (int i = 0; i < 2; i++) {
        both[i]->positions = x->r.array[ARRAY_K].n;
        both[i]->o = room((size_t)x->r.array[ARRAY_O].n * sizeof *both[i]->o);
        both[i]->lse = room((size_t)x->r.array[ARRAY_LSE].n * sizeof *both[i]->lse);
        both[i]->sees = room((size_t)(x->r.array[ARRAY_LSE].n * both[i]->positions));
    }
    evaluate(x, &x->clean);
    run_both(x);
    for (int id = ARRAY_O; id < ARRAY_COUNT; id++)
        if (x->r.array[id].block)
            x->was[id] = memcpy(room(x->r.array[id].bytes), x->r.array[id].block, x->r.array[id].bytes);
}

static void close_poisoning(poisoning *x)
{
    for (int id = 0; id < ARRAY_COUNT; id++)
        free(x->was[id]);
    free(x->clean.o), free(x->clean.lse), free(x->clean.sees);
    free(x->exact.o), free(x->exact.lse), free(x->exact.sees);
    random_problem_free(&x->r);
}

/* Returns true if the poisoned number did not change elements [from, to) of an array. */
static bool unmoved(const poisoning *x, int id, int64_t from, int64_t to)
{
    const double *got = f64_numbers(&x->r, id), *was = x->was[id];
    double most = 1;
    for (int64_t i = 0; i < x->r.array[id].n; i++)
        most = isfinite(was[i]) && was[i] != -1.25e30 ? fmax(most, fabs(was[i])) : most;
    for (int64_t i = from; i < to; i++)
        if (!(got[i] == was[i] || fabs(got[i] - was[i]) <= 1e-13 * most))
            return false;
    return true;
}

static void complain_at(const poisoning *x, int id, int64_t i, double poison, int shown, const char *what)
{
    f64_complain("%s: %g in %s[%d]: %s %s", f64_name(x->c), poison, x->r.array[id].name, (int)i, x->r.array[shown].name,
                 what);
}

/* Checks that an output is finite exactly where the exact result is finite, and that its finite numbers are exact. */
static void outputs_show_it_where_they_should(const poisoning *x, int id, int64_t i, double poison)
{
    bool soft = x->r.forward.normalization == ATTN_NORMALIZATION_SOFTMAX;
    for (int out = ARRAY_O; out <= (soft ? ARRAY_LSE : ARRAY_O); out++) {
        const long double *want = out == ARRAY_O ? x->exact.o : x->exact.lse;
        const double *got = f64_numbers(&x->r, out);
        for (int64_t e = 0; e < x->r.array[out].n; e++) {
            if (got[e] == -1.25e30 || got[e] == want[e] || (!isfinite(got[e]) && !isfinite(want[e])))
                continue;
            if (!(fabsl(got[e] - want[e]) <= 1e-13L * (10 + fabsl(want[e])))) {
                complain_at(x, id, i, poison, out, isfinite(want[e]) ? "shows it" : "hides it");
                break;
            }
        }
    }
}

static bool nobody_reads_it(const poisoning *x)
{
    for (int64_t e = 0; e < x->r.array[ARRAY_O].n; e++)
        if (x->exact.o[e] != x->clean.o[e])
            return false;
    for (int64_t e = 0; e < x->r.array[ARRAY_LSE].n; e++)
        if (x->exact.lse[e] != x->clean.lse[e])
            return false;
    return true;
}

/* Compares the long double values of a row bit by bit, except for padding bytes. */
static bool same_row(const poisoning *x, int64_t row, int64_t o)
{
    for (int64_t e = row * o; e < (row + 1) * o; e++)
        if (x->exact.o[e] != x->clean.o[e])
            return false;
    return x->exact.lse[row] == x->clean.lse[row];
}

/* Finds the first gradient that the poisoned number changed but must not change. It is a gradient of a row whose
 * exact results are the same as before, or of a key that only such rows read. The problem has one head and one axis. */
static void gradients_show_it_where_they_may(const poisoning *x, int id, int64_t i, double poison)
{
    int64_t rows = x->r.array[ARRAY_LSE].n, q = x->r.array[ARRAY_Q].n / rows, o = x->r.array[ARRAY_O].n / rows;
    int64_t keys = x->r.array[ARRAY_V].n / o;
    int shown = 0;
    for (int64_t row = 0; row < rows && !shown; row++)
        if (same_row(x, row, o) && !unmoved(x, ARRAY_DQ, row * q, (row + 1) * q))
            shown = ARRAY_DQ;
    for (int64_t j = 0; j < keys && !shown; j++) {
        bool spoilt = false;
        for (int64_t row = 0; row < rows; row++)
            spoilt = spoilt || (x->clean.sees[row * x->clean.positions + j] && !same_row(x, row, o));
        if (!spoilt && !unmoved(x, ARRAY_DK, j * q, (j + 1) * q))
            shown = ARRAY_DK;
        if (!spoilt && !unmoved(x, ARRAY_DV, j * o, (j + 1) * o))
            shown = ARRAY_DV;
    }
    if (shown)
        complain_at(x, id, i, poison, shown, "shows it where no row that has it leads");
}

static void gradients_do_not_show_it(const poisoning *x, int id, int gradient, int64_t i, double poison)
{
    for (int shown = ARRAY_DQ; shown < ARRAY_COUNT; shown++)
        if (x->was[shown] && !unmoved(x, shown, 0, x->r.array[shown].n))
            complain_at(x, id, i, poison, shown, "shows it, though nobody reads it");
    double g = x->was[gradient] ? f64_numbers(&x->r, gradient)[i] : 0;
    if (g != 0 && g != -1.25e30)
        complain_at(x, id, i, poison, gradient, "is not 0 there, though nobody reads it");
}

static int asked_times;

typedef enum question { WHERE_OUTPUTS_SHOW_IT, NOBODY_READS_IT, WHERE_GRADIENTS_SHOW_IT } question;

/* Poisons a number with NaN and with infinities. NaN shows whether the number is read. An infinity may leave a score
 * unchanged. */
static void poison(poisoning *x, question asked, int id, int gradient, int64_t i)
{
    const double with[] = {(double)NAN, (double)INFINITY, (double)-INFINITY};
    double *number = f64_numbers(&x->r, id) + i, was = *number;
    bool unread = false;
    for (int n = 0; n < 3; n++) {
        *number = with[n];
        evaluate(x, &x->exact);
        unread = n == 0 ? nobody_reads_it(x) : unread;
        if (asked == NOBODY_READS_IT ? !unread : asked == WHERE_GRADIENTS_SHOW_IT && (unread || n > 0))
            continue;
        asked_times++;
        run_both(x);
        if (asked == WHERE_OUTPUTS_SHOW_IT)
            outputs_show_it_where_they_should(x, id, i, with[n]);
        else if (asked == NOBODY_READS_IT)
            gradients_do_not_show_it(x, id, gradient, i, with[n]);
        else
            gradients_show_it_where_they_may(x, id, i, with[n]);
    }
    *number = was;
}

static void poison_all(question asked)
{
    static const int arrays[][2] = {{ARRAY_Q, ARRAY_DQ},       {ARRAY_K, ARRAY_DK}, {ARRAY_V, ARRAY_DV},
                                    {ARRAY_BIAS, ARRAY_DBIAS}, {ARRAY_W, ARRAY_DW}, {ARRAY_W2, ARRAY_DW2}};
    for (size_t n = 0; n < COUNT(hostile); n++) {
        poisoning x;
        open_poisoning(&x, &hostile[n]);
        bool rows = !(x.r.forward.flags & ATTN_WITH_PACKED) && x.r.forward.mask_fill == 0;
        for (int a = 0; a < (int)COUNT(arrays) + x.r.forward.nrelatives; a++) {
            int table = a - (int)COUNT(arrays), id = table < 0 ? arrays[a][0] : ARRAY_TABLE + table;
            int gradient = table < 0 ? arrays[a][1] : ARRAY_DTABLE + table;
            if (asked == WHERE_GRADIENTS_SHOW_IT && !rows)
                continue;
            for (int64_t i = 0; x.r.array[id].block && i < x.r.array[id].n; i += 1 + x.r.array[id].n / 14)
                poison(&x, asked, id, gradient, i);
        }
        close_poisoning(&x);
    }
    f64_end();
    assert_true(asked_times > 300);
    asked_times = 0;
}

static void outputs_show_nan_and_infinity_where_the_formulas_do(void **state)
{
    (void)state;
    poison_all(WHERE_OUTPUTS_SHOW_IT);
}

static void gradients_do_not_show_what_nobody_reads(void **state)
{
    (void)state;
    poison_all(NOBODY_READS_IT);
}

static void gradients_of_rows_and_keys_apart_do_not_show_nan(void **state)
{
    (void)state;
    poison_all(WHERE_GRADIENTS_SHOW_IT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_show_nan_and_infinity_where_the_formulas_do),
        cmocka_unit_test(gradients_do_not_show_what_nobody_reads),
        cmocka_unit_test(gradients_of_rows_and_keys_apart_do_not_show_nan),
    };
    return cmocka_run_group_tests(tests, f64_open_context, f64_close_context);
}
