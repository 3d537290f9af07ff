/* SPDX-License-Identifier: MIT
 * labels: no-tsan
 *
 * Tests attention in float64 by the solver `blocked`. Gradients are compared with differences of the output, and
 * outputs with long double. Other tests check odd sizes, accumulated gradients, kernels of the distance in f32, and
 * that the number of threads does not change a bit.
 */
#include "support/cmocka.h"

#include "support/attend_exact.h"
#include "support/f64_cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const f64_grid line = {.axes = 1, .n = {11}, .taps = {4}, .heads = 2, .channels = 5};
static const f64_grid line_zero = {
    .axes = 1, .n = {9}, .taps = {5}, .heads = 2, .channels = 4, .border = ATTN_BORDER_ZERO, .dilation = 2};
static const f64_grid line_shift = {
    .axes = 1, .n = {7}, .taps = {3}, .heads = 1, .channels = 6, .border = ATTN_BORDER_SHIFT, .step = 2, .dilation = 3};
static const f64_grid line_moved = {.axes = 1, .n = {9}, .taps = {3}, .heads = 2, .channels = 3, .moved = -4};
static const f64_grid plane = {.axes = 2, .n = {5, 4}, .taps = {3, 2}, .heads = 2, .channels = 4};
static const f64_grid plane_zero = {.axes = 2,
                                    .n = {3, 4},
                                    .taps = {3, 3},
                                    .heads = 2,
                                    .channels = 5,
                                    .border = ATTN_BORDER_ZERO,
                                    .step = 2,
                                    .dilation = 2};
static const f64_grid plane_shift = {
    .axes = 2, .n = {7, 6}, .taps = {3, 2}, .heads = 2, .channels = 6, .border = ATTN_BORDER_SHIFT, .dilation = 2};
static const f64_grid space = {.axes = 3, .n = {3, 4, 2}, .taps = {2, 3, 2}, .heads = 2, .channels = 6};
static const f64_grid space_zero = {
    .axes = 3, .n = {2, 2, 3}, .taps = {3, 2, 3}, .heads = 1, .channels = 3, .border = ATTN_BORDER_ZERO, .step = 2};
static const f64_grid space_shift = {
    .axes = 3, .n = {3, 4, 5}, .taps = {2, 2, 3}, .heads = 1, .channels = 4, .border = ATTN_BORDER_SHIFT, .moved = 1};

/* Problems that f64 attention must support: first those with one feature, and then mixtures. */
static const f64_case usual[] = {
    {.text = "b2h2q7k9d5v3:f64"},
    {.text = "b1h4q6k5d3g2:f64,causal"},
    {.text = "b2h1q5k9d7:f64,causal-br,lens"},
    {.text = "b1h2q9k8d4:f64,band=-2..3,lensq"},
    {.text = "b2h2q5k7d3:f64,pad,scale=0.7"},
    {.text = "b2h2q5k7d3:f64,mask"},
    {.text = "b1h2q11k13d3:f64,blocks=3"},
    {.text = "b2h2q5k7d3:f64,bias"},
    {.text = "b2h2q5k7d3:f64,biask,causal"},
    {.text = "b2h2q8k7d3:f64,biasd"},
    {.text = "b2h2q8k7d3:f64,buckets=5"},
    {.text = "b2h2q5k7d3:f64,sinks,dlse"},
    {.text = "b2h2q5k7d3:f64,softcap=1.5,dlse,bias"},
    {.text = "b2h2q5k7d3:f64,dropout=0.4", .add = F64_SKIP_EXACT},
    {.text = "b2h2q5k7d3:f64,over-n,mask"},
    {.text = "b2h2q5k7d3:f64,hardmax"},
    {.text = "b2h2q5k7d3:f64,hardmax,mask,bias,softcap=2", .add = F64_TABLES},
    {.text = "b2h2q5k7d3:f64,topk=3,dlse"},
    {.text = "b2h2q5k7d3:f64,topk=2,lens,sinks,bias,softcap=2", .add = F64_TABLES},
    {.text = "b2h2q5k7d3:f64,topk=4,mask,fill=-0.5,dlse"},
    {.text = "b4h2q7k6d3:f64,packed=22,topk=2,causal"},
    {.text = "b2h2q5k7d3:f64,none"},
    {.text = "b2h2q5k7d3:f64,none,mask,bias,softcap=2", .add = F64_TABLES},
    {.text = "axis3x6x2c4h2:f64,axis=1"},
    {.text = "tied3x5h2d3:f64"},
    {.text = "b2h2q7k6d4:f64,rel,dlse"},
    {.text = "b2h2q7k6d4:f64", .add = F64_QUERY_TABLE},
    {.text = "b2h2q7k6d4:f64,causal", .add = F64_KEY_TABLE},
    {.text = "b2h2q7k6d4:f64,causal", .add = F64_VALUE_TABLE},
    {.text = "b2h2q7k6d5:f64,dlse,softcap=2", .add = F64_TABLES | F64_RANGES},
    {.text = "b2h2q7k6d5:f64,lens,bias,sinks", .add = F64_TABLES | F64_OF_HEADS},
    {.text = "b1h2q7k6d5:f64,dropout=0.3,mask", .add = F64_TABLES | F64_RANGES | F64_OF_HEADS | F64_SKIP_EXACT},
    {.text = "b1h2q7k6d3:f64,over-n", .add = F64_TABLES},
    {.text = "b2h2q5k7d3:f64,mask,fill=-0.5"},
    {.text = "b2h2q5k7d3:f64,mask,fill=-1000000"},
    {.text = "b2h2q7k7d3:f64,causal,lens,fill=-10000,bias"},
    {.text = "b2h1q7k9d3:f64,lensq,fill=-1000000,dlse"},
    {.text = "b1h2q9k8d3:f64,band=-1..1,fill=-2,softcap=3", .add = F64_TABLES},
    {.text = "b1h2q9k8d3:f64,blocks=2,fill=-1000000"},
    {.text = "b1h2q7k6d3:f64,mask,fill=-1,dropout=0.3", .add = F64_SKIP_EXACT},
    {.text = "b4h2q7k6d3:f64,packed=22"},
    {.text = "b4h2q7k6d3:f64,packed=22,causal,bias,dlse", .add = F64_TABLES, .any = true},
    {.text = "b4h2q7k6d3:f64,packed=22,causal-br,sinks,softcap=2"},
    {.text = "b4h2q7k6d3:f64,packed=22,lens,fill=-1000000"},
    {.text = "b4h2q7k6d3:f64,packed=22,mask,dropout=0.2", .add = F64_SKIP_EXACT},
    {.text = "b4h2q7k6d3:f64,packed=22,additive,causal"},
};

static const f64_case scores[] = {
    {.text = "b2h2q5k7d5:f64,additive"},
    {.text = "b2h2q5k7d5:f64,additive,causal,bias,softcap=2,dlse", .add = F64_TABLES},
    {.text = "b2h2q5k7d3:f64,additive,lens,fill=-1000000"},
    {.text = "b2h2q5k7d3:f64,additive,mask,over-n"},
    {.text = "b2h2q5k7d3:f64,additive,sinks,dropout=0.3", .add = F64_SKIP_EXACT},
    {.text = "b2h2q5k7d5:f64,concat"},
    {.text = "b2h2q5k7d5:f64,concat,none,causal"},
    {.text = "b2h2q5k7d5:f64,concat,topk=3"}, /* concat gives several scores of 0, which are equal */
    {.text = "b2h2q5k7d5:f64,concat,band=-2..1,bias,scale=2,dlse", .add = F64_TABLES | F64_RANGES},
    {.text = "b2h2q5k7d3:f64,concat,mask,fill=-1000000"},
    {.text = "b2h2q5k7d3:f64,concat,over-n"},
    {.text = "b2h2q5k7d3:f64,concat,lens,dropout=0.3", .add = F64_SKIP_EXACT},
    {.text = "b2h2q5k7d3:f64,gaussian", .width = 1.5},
    {.text = "b2h2q5k7d3:f64,gaussian,causal,bias,dlse", .width = 2.5, .add = F64_TABLES},
    {.text = "b2h2q5k7d3:f64,gaussian,mask,fill=-1000000,softcap=4"},
    {.text = "b2h2q5k7d3:f64,gaussian,over-n,lens", .width = 1.5},
    {.text = "b2h2q5k7d3:f64,boxcar", .width = 2.5},
    {.text = "b2h2q5k7d3:f64,boxcar,bias,mask", .width = 2.5},
    {.text = "b2h2q5k7d3:f64,boxcar,kernel-sum,pad", .width = 2.5},
    {.text = "b2h2q5k7d3:f64,boxcar,over-n", .width = 2.5},
    {.text = "b2h2q5k7d3:f64,boxcar,topk=2", .width = 2.5},
    {.text = "b2h2q5k7d3:f64,constant,hardmax,mask", .any = true},
    {.text = "b2h2q5k7d3:f64,triangular,dlse", .width = 4},
    {.text = "b2h2q5k7d3:f64,triangular,causal,bias,sinks", .width = 4, .add = F64_TABLES},
    {.text = "b2h2q5k7d3:f64,triangular,kernel-sum", .width = 4},
    /* the triangular kernel gives rows whose weights sum to 0 */
    {.text = "b2h2q5k7d3:f64,triangular,kernel-sum,lens,mask", .width = 1.5},
    {.text = "b2h2q5k7d3:f64,triangular,over-n,mask", .width = 4},
    {.text = "b2h2q5k7d3:f64,triangular,dropout=0.3", .width = 4, .add = F64_SKIP_EXACT},
    {.text = "b2h2q5k7d3:f64,constant,kernel-sum,mask", .any = true},
};

static const f64_case windows[] = {
    {.grid = &line},
    {.grid = &line, .add = F64_TABLES | F64_RANGES | F64_BIAS, .with = ATTN_WITH_DLSE},
    {.grid = &line, .add = F64_BAND | F64_PLACES, .softcap = 2},
    {.grid = &line, .score = ATTN_SCORE_ADDITIVE, .add = F64_QUERY_TABLE},
    {.grid = &line, .score = ATTN_SCORE_CONCAT, .add = F64_BIAS},
    {.grid = &line, .dropout = 0.3, .add = F64_TABLES | F64_SKIP_EXACT},
    {.grid = &line_zero},
    {.grid = &line_zero, .add = F64_TABLES | F64_BIAS, .with = ATTN_WITH_DLSE},
    {.grid = &line_zero, .score = ATTN_SCORE_ADDITIVE},
    {.grid = &line_zero, .score = ATTN_SCORE_GAUSSIAN, .width = 2},
    {.grid = &line_zero, .score = ATTN_SCORE_TRIANGULAR, .width = 5},
    {.grid = &line_shift},
    {.grid = &line_shift, .add = F64_TABLES | F64_RANGES | F64_PLACES},
    {.grid = &line_shift, .score = ATTN_SCORE_CONCAT, .add = F64_BIAS | F64_KEY_TABLE},
    {.grid = &line_shift, .add = F64_PLACES, .fill = -1e6},
    {.grid = &line_moved, .add = F64_TABLES},
    {.grid = &plane, .add = F64_BAND},
    {.grid = &plane, .add = F64_TABLES | F64_RANGES | F64_OF_HEADS | F64_BIAS, .with = ATTN_WITH_DLSE},
    {.grid = &plane, .score = ATTN_SCORE_GAUSSIAN, .width = 1.5, .add = F64_PLACES},
    {.grid = &plane_zero, .add = F64_TABLES | F64_BIAS},
    {.grid = &plane_zero, .score = ATTN_SCORE_ADDITIVE, .softcap = 2},
    {.grid = &plane_shift, .add = F64_TABLES | F64_RANGES},
    {.grid = &plane_shift, .add = F64_PLACES, .fill = -3},
    {.grid = &plane_shift, .score = ATTN_SCORE_BOXCAR, .width = 3},
    {.grid = &space},
    {.grid = &space, .add = F64_TABLES | F64_RANGES | F64_BIAS},
    {.grid = &space_zero, .add = F64_TABLES},
    {.grid = &space_shift, .add = F64_TABLES, .with = ATTN_WITH_DLSE},
    {.grid = &space_shift, .score = ATTN_SCORE_CONCAT},
    {.text = "window7x5w3h2d4b2:f64,mask-border,rel,biask"},
    {.text = "window7x6w3x2h2d4s2:f64,zero,rel,sinks"},
    {.text = "window7x6w3h2d4l2:f64,shift,rel,over-n"},
};

static const f64_grid wide = {.axes = 2, .n = {21, 13}, .taps = {7, 5}, .heads = 3, .channels = 9};
static const f64_grid wide_shift = {
    .axes = 2, .n = {17, 15}, .taps = {5, 5}, .heads = 2, .channels = 8, .border = ATTN_BORDER_SHIFT, .dilation = 2};
static const f64_grid long_line = {
    .axes = 1, .n = {301}, .taps = {31}, .heads = 2, .channels = 6, .border = ATTN_BORDER_ZERO};
static const f64_case large[] = {
    {.text = "b1h2q193k257d16:f64,causal-br,dlse"},
    {.text = "b2h2q193k257d5v7:f64,lens,bias,softcap=3", .add = F64_TABLES | F64_RANGES},
    {.text = "b3h2q97k131d6:f64,mask,fill=-1000000"},
    {.text = "b1h2q129k65d7:f64,additive,sinks", .add = F64_QUERY_TABLE},
    {.text = "b2h2q65k193d7:f64,concat,band=-20..30", .add = F64_TABLES | F64_OF_HEADS},
    {.text = "b2h2q65k193d7:f64,gaussian,biasd", .width = 3},
    {.text = "b2h2q65k193d3:f64,triangular,kernel-sum", .width = 4},
    {.text = "b5h2q100k90d5:f64,packed=333,causal", .add = F64_TABLES, .any = true},
    {.text = "b2h2q150k140d5:f64,blocks=16,biask"},
    {.text = "b2h1q257k193d1:f64,over-n,buckets=9"},
    {.text = "b1h2q65k530d5:f64,topk=9,lens,dlse"},
    {.text = "b1h2q65k530d5:f64,hardmax,causal-br"},
    {.text = "b1h2q97k131d3:f64,none"},
    {.grid = &wide, .add = F64_TABLES | F64_RANGES | F64_BIAS, .with = ATTN_WITH_DLSE},
    {.grid = &wide_shift, .add = F64_TABLES},
    {.grid = &wide, .score = ATTN_SCORE_ADDITIVE, .add = F64_BIAS},
    {.grid = &long_line, .add = F64_TABLES, .softcap = 3},
};

/* Windows that are larger than their axis, that are completely outside of it, or that have one position. */
static const f64_grid larger = {.axes = 1, .n = {4}, .taps = {13}, .heads = 2, .channels = 3};
static const f64_grid larger_zero = {
    .axes = 2, .n = {3, 2}, .taps = {7, 9}, .heads = 1, .channels = 3, .border = ATTN_BORDER_ZERO, .dilation = 2};
static const f64_grid outside = {.axes = 1, .n = {5}, .taps = {3}, .heads = 2, .channels = 3, .moved = 9};
static const f64_grid outside_zero = {
    .axes = 1, .n = {5}, .taps = {3}, .heads = 2, .channels = 3, .moved = -9, .border = ATTN_BORDER_ZERO};
static const f64_grid outside_shift = {
    .axes = 1, .n = {5}, .taps = {3}, .heads = 2, .channels = 3, .moved = 90, .border = ATTN_BORDER_SHIFT};
static const f64_grid one_place = {.axes = 1, .n = {1}, .taps = {1}, .heads = 1, .channels = 1};
static const f64_grid no_taps = {.axes = 1, .n = {5}, .taps = {0}, .heads = 1, .channels = 2};
static const f64_grid no_rows = {.axes = 1, .n = {0}, .size = {6}, .taps = {3}, .heads = 1, .channels = 2};
static const f64_case odd[] = {
    {.text = "b2h2q5k0d3:f64", .any = true},
    {.text = "b2h2q5k0d3:f64,sinks", .add = F64_TABLES, .any = true},
    {.text = "b2h2q0k5d3:f64", .add = F64_TABLES, .any = true},
    {.text = "b0h2q4k5d3:f64,additive", .any = true},
    {.text = "b2h2q4k0d3:f64,additive", .any = true},
    {.text = "b2h2q5k1d3:f64,concat", .add = F64_TABLES},
    {.text = "b1h1q1k1d1:f64", .add = F64_TABLES},
    {.text = "b2h2q5k1d3:f64,dlse"},
    {.text = "b2h2q17k9d1:f64,gaussian"},
    {.text = "b2h2q17k9d1:f64,additive,dlse"},
    {.text = "b2h2q9k17d1v5:f64,mask,fill=-1000000"},
    {.text = "b1h1q193k257d3:f64", .add = F64_TABLES},
    {.text = "b1h1q193k257d2:f64,triangular,causal", .width = 3},
    {.text = "b1h1q2k257d65v67:f64,additive"},
    {.text = "b3h1q0k0d3:f64,packed=0", .any = true},
    {.grid = &larger, .add = F64_TABLES},
    {.grid = &larger_zero, .add = F64_TABLES | F64_BIAS},
    {.grid = &outside, .add = F64_TABLES, .with = ATTN_WITH_DLSE},
    {.grid = &outside, .score = ATTN_SCORE_ADDITIVE},
    {.grid = &outside_zero, .add = F64_TABLES | F64_BIAS},
    {.grid = &outside_shift, .add = F64_TABLES},
    {.grid = &one_place, .add = F64_TABLES},
    {.grid = &no_taps, .any = true},
    {.grid = &no_rows, .add = F64_TABLES, .any = true},
};

#define COUNT(cases) (sizeof(cases) / sizeof *(cases))

/* ---------------------------------------------------------------------------------------- gradients, by differences */

typedef struct quotient {
    const f64_case *c;
    random_problem r;
    attn_plan *plan;
    double *o, *lse;
} quotient;

static void execute(const quotient *d)
{
    if (attn_plan_execute(d->plan, &d->r.arrays, NULL) != ATTN_OK)
        fail_msg("%s: %s", f64_name(d->c), attn_context_error(f64_context));
}

/* Returns the loss at the upper point minus the loss at the current point. The outputs are subtracted before they
 * are summed, so that unchanged outputs contribute exactly 0. */
static double loss_above(const quotient *d)
{
    const random_problem *r = &d->r;
    long double sum = 0;
    for (int64_t i = 0; i < r->array[ARRAY_O].n; i++)
        sum += (long double)f64_numbers(r, ARRAY_DOUT)[i] * (d->o[i] - f64_numbers(r, ARRAY_O)[i]);
    for (int64_t i = 0; (r->backward.flags & ATTN_WITH_DLSE) && i < r->array[ARRAY_LSE].n; i++)
        if (isfinite(d->lse[i]))
            sum += (long double)f64_numbers(r, ARRAY_DLSE)[i] * (d->lse[i] - f64_numbers(r, ARRAY_LSE)[i]);
    return (double)sum;
}

static void compare_slopes(quotient *d, attn_array id, int by, int gradient)
{
    const double h = 1e-6;
    random_problem *r = &d->r;
    const array *of = &r->array[by];
    attn_span span;
    if (!r->array[gradient].block || !attn_plan_span(d->plan, id, &span) || span.low == span.high)
        return;
    bool packed = r->forward.flags & ATTN_WITH_PACKED;
    double *x = of->block;
    const double *got = r->array[gradient].block;
    for (int64_t i = 0; i < of->n; i += 1 + of->n / 40) {
        double was = x[i];
        bool untouched = packed && got[i] == -1.25e30;
        /* NaN marks a number that no query reads. -infinity in a bias masks a pair. */
        if (!isfinite(was)) {
            if (got[i] != 0 && !untouched)
                f64_complain("%s: %s[%d] is %g where no query attends", f64_name(d->c), r->array[gradient].name, (int)i,
                             got[i]);
            continue;
        }
        x[i] = was + h;
        execute(d);
        memcpy(d->o, r->array[ARRAY_O].block, r->array[ARRAY_O].bytes);
        memcpy(d->lse, r->array[ARRAY_LSE].block, r->array[ARRAY_LSE].bytes);
        x[i] = was - h;
        execute(d);
        double slope = loss_above(d) / ((was + h) - (was - h));
        x[i] = was;
        if (!(untouched && slope == 0) && !(fabs(slope - got[i]) <= 1e-7 * (1 + fabs(got[i])))) {
            f64_complain("%s: %s[%d] is %.12g, differences say %.12g", f64_name(d->c), r->array[gradient].name, (int)i,
                         got[i], slope);
            return;
        }
    }
}

static void differentiate(const f64_case *c)
{
    static const int arrays[][3] = {{ATTN_ARRAY_Q, ARRAY_Q, ARRAY_DQ},
                                    {ATTN_ARRAY_K, ARRAY_K, ARRAY_DK},
                                    {ATTN_ARRAY_V, ARRAY_V, ARRAY_DV},
                                    {ATTN_ARRAY_BIAS, ARRAY_BIAS, ARRAY_DBIAS},
                                    {ATTN_ARRAY_W, ARRAY_W, ARRAY_DW},
                                    {ATTN_ARRAY_W2, ARRAY_W2, ARRAY_DW2},
                                    {ATTN_ARRAY_SINKS, ARRAY_SINKS, ARRAY_DSINKS}};
    quotient d = {.c = c};
    f64_make(&d.r, c);
    d.plan = f64_plan(f64_context, &d.r.forward, 0, c);
    d.o = malloc(d.r.array[ARRAY_O].bytes + 1), d.lse = malloc(d.r.array[ARRAY_LSE].bytes + 1);
    if (d.plan && d.o && d.lse) {
        execute(&d);
        if (f64_run(f64_context, &d.r.backward, &d.r.arrays, c)) {
            for (size_t i = 0; i < COUNT(arrays); i++)
                compare_slopes(&d, (attn_array)arrays[i][0], arrays[i][1], arrays[i][2]);
            for (int i = 0; i < d.r.forward.nrelatives; i++)
                compare_slopes(&d, (attn_array)(ATTN_ARRAY_TABLE + i), ARRAY_TABLE + i, ARRAY_DTABLE + i);
        }
    }
    attn_plan_destroy(d.plan);
    free(d.o), free(d.lse);
    random_problem_free(&d.r);
}

static void differentiate_all(const f64_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++)
        differentiate(&cases[i]);
    f64_end();
}

static void gradients_of_masks_tables_fills_and_packed_sequences_are_slopes(void **state)
{
    (void)state;
    differentiate_all(usual, COUNT(usual));
}

static void gradients_of_every_score_are_slopes(void **state)
{
    (void)state;
    differentiate_all(scores, COUNT(scores));
}

static void gradients_of_windows_are_slopes(void **state)
{
    (void)state;
    differentiate_all(windows, COUNT(windows));
}

static void gradients_at_odd_sizes_are_slopes(void **state)
{
    (void)state;
    differentiate_all(odd, COUNT(odd));
}

/* --------------------------------------------------------------------------------------------------------- accuracy */

/* Elements that are not written must still have the pattern of random_problem_poison. */
static void assert_exact(const random_problem *r, const f64_case *c, int id, const long double *want)
{
    const double *got = f64_numbers(r, id);
    long double most = 0;
    for (int64_t i = 0; i < r->array[id].n; i++)
        most = isfinite(want[i]) && got[i] != -1.25e30 && fabsl(want[i]) > most ? fabsl(want[i]) : most;
    for (int64_t i = 0; i < r->array[id].n; i++)
        if (!(got[i] == want[i] || fabsl(got[i] - want[i]) <= 1e-13L * most)) {
            f64_complain("%s: %s[%d] is %.17g, not %.17Lg", f64_name(c), r->array[id].name, (int)i, got[i], want[i]);
            return;
        }
}

static long double *poisoned(const array *a)
{
    long double *x = malloc((size_t)a->n * sizeof *x + 1);
    if (!x)
        abort();
    for (int64_t i = 0; i < a->n; i++)
        x[i] = (long double)-1.25e30;
    return x;
}

static void evaluate_all(const f64_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        random_problem r;
        if (cases[i].add & F64_SKIP_EXACT)
            continue;
        f64_make(&r, &cases[i]);
        attend_exact_arrays exact = {.o = poisoned(&r.array[ARRAY_O]), .lse = poisoned(&r.array[ARRAY_LSE])};
        if (f64_run(f64_context, &r.forward, &r.arrays, &cases[i])) {
            attend_exact(&r.forward, &r.arrays, &exact);
            assert_exact(&r, &cases[i], ARRAY_O, exact.o);
            if (r.forward.normalization == ATTN_NORMALIZATION_SOFTMAX)
                assert_exact(&r, &cases[i], ARRAY_LSE, exact.lse);
        }
        free(exact.o), free(exact.lse);
        random_problem_free(&r);
    }
    f64_end();
}

static void outputs_are_those_of_the_formulas(void **state)
{
    (void)state;
    evaluate_all(usual, COUNT(usual));
}

static void outputs_of_every_score_are_those_of_the_formulas(void **state)
{
    (void)state;
    evaluate_all(scores, COUNT(scores));
}

static void outputs_of_windows_are_those_of_the_formulas(void **state)
{
    (void)state;
    evaluate_all(windows, COUNT(windows));
}

static void outputs_of_large_and_odd_sizes_are_those_of_the_formulas(void **state)
{
    (void)state;
    evaluate_all(large, COUNT(large));
    evaluate_all(odd, COUNT(odd));
}

/* ---------------------------------------------------------------------------------------------------------- threads */

static void run_threads(random_problem *r, const f64_case *c, const attn_problem *p, int from, int to)
{
    static const int counts[] = {1, 2, 3, 7};
    void *one[ARRAY_COUNT] = {NULL};
    for (int t = 0; t < 4; t++) {
        attn_plan *plan = f64_plan(f64_context, p, counts[t], c);
        for (int id = from; id < to; id++)
            for (int64_t i = 0; r->array[id].block && i < r->array[id].n; i++)
                array_set(&r->array[id], r->array[id].low + i, -1.25e30);
        if (plan && attn_plan_execute(plan, &r->arrays, NULL) != ATTN_OK)
            f64_complain("%s: %s", f64_name(c), attn_context_error(f64_context));
        attn_plan_destroy(plan);
        for (int id = from; id < to; id++) {
            const array *a = &r->array[id];
            if (!a->block)
                continue;
            if (t == 0)
                one[id] = memcpy(malloc(a->bytes + 1), a->block, a->bytes);
            else if (memcmp(one[id], a->block, a->bytes) != 0)
                f64_complain("%s: %d threads give other bits in %s", f64_name(c), counts[t], a->name);
        }
    }
    for (int id = 0; id < ARRAY_COUNT; id++)
        free(one[id]);
}

static void the_number_of_threads_changes_no_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(large); i++) {
        random_problem r;
        f64_make(&r, &large[i]);
        run_threads(&r, &large[i], &r.forward, ARRAY_O, ARRAY_DQ);
        run_threads(&r, &large[i], &r.backward, ARRAY_DQ, ARRAY_COUNT);
        random_problem_free(&r);
    }
    f64_end();
}

/* ----------------------------------------------------------------------------------------- added; in f32 */

static const f64_case added[] = {
    {.text = "b2h2q5k7d3:f64,causal,bias,sinks,dlse", .add = F64_TABLES},
    {.text = "b1h4q65k70d5g2:f64,lens"},
    {.text = "b2h2q5k7d3:f64,additive"},
    {.text = "b2h2q5k7d3:f64,concat,biask,mask,fill=-1000000", .any = true},
    {.text = "b2h2q5k7d3:f64,triangular,kernel-sum", .width = 4},
    {.text = "b4h2q7k6d3:f64,packed=22"},
    {.grid = &line, .any = true, .add = F64_TABLES | F64_BIAS},
    {.grid = &line_zero, .score = ATTN_SCORE_ADDITIVE},
};

/* Replaces a gradient by small numbers, to which a plan will add. Returns the old gradient plus these numbers, which
 * the caller frees. */
static double *something_to_add_to(const array *gradient)
{
    double *x = gradient->block, *sum = malloc(gradient->bytes + 1);
    if (!sum)
        abort();
    for (int64_t i = 0; i < gradient->n; i++) {
        double before = (double)(i % 7) - 3;
        sum[i] = before + (x[i] == -1.25e30 ? 0 : x[i]);
        x[i] = before;
    }
    return sum;
}

static void gradients_are_added_to_what_is_there(void **state)
{
    (void)state;
    for (size_t n = 0; n < COUNT(added); n++) {
        random_problem r;
        double *want[ARRAY_COUNT] = {NULL};
        f64_make(&r, &added[n]);
        if (f64_run(f64_context, &r.forward, &r.arrays, &added[n]))
            f64_run(f64_context, &r.backward, &r.arrays, &added[n]);
        for (int id = ARRAY_DQ; id < ARRAY_COUNT; id++)
            if (r.array[id].block)
                want[id] = something_to_add_to(&r.array[id]);
        r.backward.accumulate = true;
        f64_run(f64_context, &r.backward, &r.arrays, &added[n]);
        for (int id = ARRAY_DQ; id < ARRAY_COUNT; id++)
            for (int64_t i = 0; want[id] && i < r.array[id].n; i++)
                if (!(fabs(f64_numbers(&r, id)[i] - want[id][i]) <= 1e-13 * (10 + fabs(want[id][i]))))
                    f64_complain("%s: %s[%d] is not added", f64_name(&added[n]), r.array[id].name, (int)i);
        for (int id = 0; id < ARRAY_COUNT; id++)
            free(want[id]);
        random_problem_free(&r);
    }
    f64_end();
}

static const f64_case kernels[] = {
    {.text = "b2h2q33k41d3:gaussian", .width = 1.5, .f32 = true},
    {.text = "b2h2q33k41d3:gaussian,over-n", .width = 1.5, .f32 = true},
    {.text = "b2h2q33k41d1:boxcar", .width = 1.5, .f32 = true},
    {.text = "b2h2q33k41d3:boxcar,kernel-sum", .width = 2.5, .f32 = true},
    {.text = "b2h2q33k41d3:triangular", .width = 4, .f32 = true},
    {.text = "b2h2q33k41d3:triangular,kernel-sum", .width = 4, .f32 = true},
    {.text = "b2h2q65k131d17:triangular,over-n", .width = 7, .f32 = true},
    {.text = "b2h2q33k41d3:gaussian,causal,bias,dlse", .width = 2.5, .f32 = true},
    {.text = "b2h2q33k41d3:triangular,lens,mask,softcap=2", .width = 4, .f32 = true},
};

static void compare_types(const f64_case *c, const random_problem *single, const random_problem *twice, int id)
{
    double most = 0, error = 0;
    for (int64_t i = 0; i < twice->array[id].n; i++) {
        double want = f64_numbers(twice, id)[i], got = array_get(&single->array[id], i);
        if (!isfinite(want) && want == got)
            continue;
        most = fmax(most, fabs(want));
        error = isnan(got) ? (double)INFINITY : fmax(error, fabs(want - got));
    }
    if (!(error <= 2e-6 * (most + 1)))
        f64_complain("%s: %s is off by %g of %g", f64_name(c), twice->array[id].name, error, most);
}

static void kernels_of_the_distance_in_f32_are_those_in_f64(void **state)
{
    (void)state;
    for (size_t n = 0; n < COUNT(kernels); n++) {
        f64_case twice = kernels[n];
        random_problem r, r64;
        twice.f32 = false;
        f64_make(&r, &kernels[n]);
        f64_make(&r64, &twice);
        for (int id = 0; id < ARRAY_O; id++)
            for (int64_t i = 0; r.array[id].block && r.array[id].dtype == ATTN_F32 && i < r.array[id].n; i++)
                array_set(&r64.array[id], i, array_get(&r.array[id], i));
        if (f64_run(f64_context, &r.forward, &r.arrays, &kernels[n]) &&
            f64_run(f64_context, &r.backward, &r.arrays, &kernels[n]) &&
            f64_run(f64_context, &r64.forward, &r64.arrays, &twice) &&
            f64_run(f64_context, &r64.backward, &r64.arrays, &twice))
            for (int id = ARRAY_O; id < ARRAY_COUNT; id++)
                if (r.array[id].block && (id != ARRAY_LSE || r.forward.normalization == ATTN_NORMALIZATION_SOFTMAX))
                    compare_types(&kernels[n], &r, &r64, id);
        random_problem_free(&r);
        random_problem_free(&r64);
    }
    f64_end();
}

/* The triangular kernel has no slope at distance 0. The expected numbers are computed by hand: the kernel is 1 and
 * 1/2, and the output is 5/3. The gradients of the kernel are -4/9 and 8/9. Only the second key has a slope, which
 * is 1/2. */
static void a_query_at_a_key_has_no_slope(void **state)
{
    (void)state;
    static const f64_case c = {.text = "b1h1q1k2d1:f64,triangular,kernel-sum", .width = 2};
    static const double key[] = {0, 1}, value[] = {1, 3}, want[][2] = {{4.0 / 9}, {0, -4.0 / 9}, {2.0 / 3, 1.0 / 3}};
    random_problem r;
    f64_make(&r, &c);
    f64_numbers(&r, ARRAY_Q)[0] = 0;
    f64_numbers(&r, ARRAY_DOUT)[0] = 1;
    memcpy(f64_numbers(&r, ARRAY_K), key, sizeof key);
    memcpy(f64_numbers(&r, ARRAY_V), value, sizeof value);
    assert_true(f64_run(f64_context, &r.forward, &r.arrays, &c) && f64_run(f64_context, &r.backward, &r.arrays, &c));
    assert_true(fabs(f64_numbers(&r, ARRAY_O)[0] - 5.0 / 3) < 1e-15);
    for (int id = ARRAY_DQ; id <= ARRAY_DV; id++)
        for (int64_t i = 0; i < r.array[id].n; i++)
            assert_true(fabs(f64_numbers(&r, id)[i] - want[id - ARRAY_DQ][i]) < 1e-15);
    random_problem_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_masks_tables_fills_and_packed_sequences_are_slopes),
        cmocka_unit_test(gradients_of_every_score_are_slopes),
        cmocka_unit_test(gradients_of_windows_are_slopes),
        cmocka_unit_test(gradients_at_odd_sizes_are_slopes),
        cmocka_unit_test(outputs_are_those_of_the_formulas),
        cmocka_unit_test(outputs_of_every_score_are_those_of_the_formulas),
        cmocka_unit_test(outputs_of_windows_are_those_of_the_formulas),
        cmocka_unit_test(outputs_of_large_and_odd_sizes_are_those_of_the_formulas),
        cmocka_unit_test(the_number_of_threads_changes_no_bit),
        cmocka_unit_test(gradients_are_added_to_what_is_there),
        cmocka_unit_test(kernels_of_the_distance_in_f32_are_those_in_f64),
        cmocka_unit_test(a_query_at_a_key_has_no_slope),
    };
    return cmocka_run_group_tests(tests, f64_open_context, f64_close_context);
}
