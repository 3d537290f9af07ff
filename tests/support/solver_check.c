/* SPDX-License-Identifier: MIT */
#include "support/solver_check.h"

#include "support/cmocka.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static attend_ref_arrays as_arrays(double *const x[ARRAY_COUNT])
{
    attend_ref_arrays a = {.o = x[ARRAY_O],
                           .lse = x[ARRAY_LSE],
                           .weights = x[ARRAY_WEIGHTS],
                           .dq = x[ARRAY_DQ],
                           .dk = x[ARRAY_DK],
                           .dv = x[ARRAY_DV],
                           .dbias = x[ARRAY_DBIAS],
                           .dw = x[ARRAY_DW],
                           .dw2 = x[ARRAY_DW2],
                           .dsinks = x[ARRAY_DSINKS]};
    for (int i = 0; i < ATTN_MAX_RELATIVE; i++)
        a.dtable[i] = x[ARRAY_DTABLE + i];
    return a;
}

void truth_make(truth *t, const random_problem *r)
{
    memset(t, 0, sizeof *t);
    for (int i = ARRAY_O; i < ARRAY_COUNT; i++) {
        const array *a = &r->array[i];
        if (!a->block)
            continue;
        t->value[i] = (double *)calloc((size_t)a->n, sizeof(double)) - a->low;
        t->bound[i] = (double *)calloc((size_t)a->n, sizeof(double)) - a->low;
        for (int64_t e = 0; e < a->n; e++)
            t->bound[i][a->low + e] = -1;
    }
    attend_ref_arrays value = as_arrays(t->value), bound = as_arrays(t->bound);
    attend_ref_run(&r->backward, &r->arrays, &value, &bound, attend_ref_units_of(r->forward.dtype));
}

void truth_free(truth *t, const random_problem *r)
{
    for (int i = ARRAY_O; i < ARRAY_COUNT; i++) {
        if (!t->value[i])
            continue;
        free(t->value[i] + r->array[i].low);
        free(t->bound[i] + r->array[i].low);
    }
}

static bool is_written(const random_problem *r, int id, attn_direction direction)
{
    if (!r->array[id].block)
        return false;
    if (direction == ATTN_DIRECTION_BACKWARD)
        return id >= ARRAY_DQ;
    return id < ARRAY_DQ && (id != ARRAY_LSE || (r->forward.flags & ATTN_WANT_LSE));
}

static double ulp_of(attn_dtype dtype)
{
    return dtype == ATTN_BF16 ? 0x1p-8 : dtype == ATTN_F64 ? 0x1p-53 : 0x1p-24;
}

static void complain(const random_problem *r, const char *solver, const array *a, int64_t offset, double got,
                     double want, double bound)
{
    char text[400];
    random_problem_describe(r, text, sizeof text);
    fail_msg("%s\n  solver %s: %s[%lld] is %.9g, not %.9g (bound %.9g)", text, solver, a->name, (long long)offset, got,
             want, bound);
}

static void compare(const random_problem *r, const char *solver, int id, const truth *t, const void *before,
                    bool accumulate, double *worst)
{
    const array *a = &r->array[id];
    array old = *a;
    old.block = (void *)(uintptr_t)before;
    for (int64_t e = a->low; e < a->low + a->n; e++) {
        double got = array_get(a, e), was = array_get(&old, e), bound = t->bound[id][e];
        double want = t->value[id][e] + (accumulate ? was : 0);
        if (bound < 0) { /* A negative bound marks an element that solvers must not write. */
            if (got != was)
                complain(r, solver, a, e, got, was, 0);
            continue;
        }
        if ((isnan(want) && isnan(got)) || want == got)
            continue;
        bound += ulp_of(a->dtype) * (accumulate ? fabs(want) + fabs(was) : 0) + 1e-36;
        double error = fabs(got - want);
        if (!(error <= bound))
            complain(r, solver, a, e, got, want, bound);
        if (error / bound > *worst)
            *worst = error / bound;
    }
}

bool solver_run(attn_context *context, const char *solver, int threads, const attn_problem *problem,
                const attn_arrays *arrays)
{
    attn_plan *plan;
    attn_plan_options options = {.solver = solver, .threads = threads};
    attn_status status = attn_plan_create(&plan, context, problem, &options);
    if (status == ATTN_ERROR_UNSUPPORTED && solver) {
        attn_context_clear_error(context);
        return false;
    }
    if (status != ATTN_OK)
        fail_msg("planning failed: %s", attn_context_error(context));
    if (attn_plan_execute(plan, arrays, NULL) != ATTN_OK)
        fail_msg("execution failed: %s", attn_context_error(context));
    attn_plan_destroy(plan);
    return true;
}

static void *copy_of(const array *a)
{
    void *copy = malloc(a->bytes + 1);
    if (!copy)
        fail_msg("no memory");
    return memcpy(copy, a->block, a->bytes);
}

static void poison(random_problem *r, attn_direction direction)
{
    for (int id = ARRAY_O; id < ARRAY_COUNT; id++) {
        const array *a = &r->array[id];
        if (!is_written(r, id, direction))
            continue;
        for (int64_t e = 0; e < a->n; e++) /* A plan that accumulates needs finite numbers in its outputs. */
            array_set(a, a->low + e, r->backward.accumulate ? (double)(e % 7) - 3 : -1.25e30);
    }
}

bool solver_check(attn_context *context, const char *solver, random_problem *r, const truth *t,
                  attn_direction direction, double *worst)
{
    const attn_problem *p = direction == ATTN_DIRECTION_FORWARD ? &r->forward : &r->backward;
    void *before[ARRAY_COUNT] = {NULL};
    poison(r, direction);
    for (int id = ARRAY_O; id < ARRAY_COUNT; id++)
        before[id] = is_written(r, id, direction) ? copy_of(&r->array[id]) : NULL;
    bool ran = solver_run(context, solver, 0, p, &r->arrays);
    for (int id = ARRAY_O; id < ARRAY_COUNT; id++) {
        if (ran && before[id])
            compare(r, solver ? solver : "chosen", id, t, before[id],
                    direction == ATTN_DIRECTION_BACKWARD && p->accumulate, worst);
        free(before[id]);
    }
    return ran;
}

void solver_prepare_backward(attn_context *context, random_problem *r)
{
    attn_problem p = r->forward;
    p.flags &= ~(unsigned)ATTN_WANT_WEIGHTS;
    p.flags |= p.normalization == ATTN_NORMALIZATION_SIGMOID ? 0 : ATTN_WANT_LSE;
    solver_run(context, "reference", 0, &p, &r->arrays);
}

void solver_check_threads(attn_context *context, const char *solver, random_problem *r, attn_direction direction)
{
    static const int counts[] = {1, 2, 3, 7};
    const attn_problem *p = direction == ATTN_DIRECTION_FORWARD ? &r->forward : &r->backward;
    void *first[ARRAY_COUNT] = {NULL};
    for (int i = 0; i < 4; i++) {
        poison(r, direction);
        if (!solver_run(context, solver, counts[i], p, &r->arrays))
            return;
        for (int id = ARRAY_O; id < ARRAY_COUNT; id++) {
            if (!is_written(r, id, direction))
                continue;
            if (i == 0)
                first[id] = copy_of(&r->array[id]);
            else if (memcmp(first[id], r->array[id].block, r->array[id].bytes) != 0)
                fail_msg("problem %llu, solver %s: %d threads give other bits in %s", (unsigned long long)r->number,
                         solver, counts[i], r->array[id].name);
        }
    }
    for (int id = 0; id < ARRAY_COUNT; id++)
        free(first[id]);
}
