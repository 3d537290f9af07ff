/* SPDX-License-Identifier: MIT
 * plan.c - makes and runs plans.  To make a plan, it checks the problem, brings it to canonical form, chooses a solver,
 * chains the steps and sizes the workspace. To run a plan, it checks the arrays and runs the steps. */
#include "attend/plan/plan.h"

#include "attend/block/items.h"
#include "attend/problem/arrays.h"
#include "attend/problem/problem.h"
#include "base/integers.h"
#include "base/parallel.h"

/* All wrappers, outermost first. */
static const attn__wrapper *const wrappers[ATTN__WRAPPERS] = {&attn__wrapper_bias_index, &attn__wrapper_weights,
                                                              &attn__wrapper_private_gradients, &attn__wrapper_sinks};

static attn_status make_canonical(attn_plan *plan, const attn_problem *problem, const attn_plan_options *options)
{
    attn_problem resolved = *problem;
    attn_status status = ATTN_OK;
    attn__resolve_problem(&resolved);
    for (int i = 0; status == ATTN_OK && i < ATTN__WRAPPERS; i++)
        if (wrappers[i]->resolve)
            status = wrappers[i]->resolve(plan->context, &resolved, &plan->data[i]);
    attn__canonical_make(&plan->canonical, &resolved, plan->context->batch_invariant);
    plan->canonical.threads = options->threads ? options->threads : plan->context->threads;
    plan->canonical.isa = plan->context->isa;
    plan->canonical.caches = plan->context->caches;
    return status;
}

/* Lets each wrapper change the canonical problem. It is called once before and once after a solver is chosen. */
static attn_status wrap_canonical(attn_plan *plan)
{
    attn_status status = ATTN_OK;
    for (int i = 0; status == ATTN_OK && i < ATTN__WRAPPERS; i++)
        if (wrappers[i]->canonical)
            status = wrappers[i]->canonical(plan->context, &plan->canonical, plan->solver, &plan->data[i]);
    return status;
}

static void run_solver(const attn__step *step, const attn__execution *arrays, char *workspace)
{
    const attn_plan *plan = step->plan;
    plan->solver->apply(&plan->canonical, &plan->recipe, arrays, workspace + step->workspace_at);
}

/* Appends a step to the chain. The step's part of the workspace begins at a cache line. */
static void add_step(attn_plan *plan, attn__step step, size_t workspace)
{
    size_t end = attn__size_add(plan->workspace_size, 63);
    step.plan = plan;
    step.workspace_at = end == SIZE_MAX ? 0 : end / 64 * 64;
    step.child = step.run == run_solver ? NULL : &plan->steps[plan->nsteps + 1];
    plan->workspace_size = end == SIZE_MAX ? SIZE_MAX : attn__size_add(step.workspace_at, workspace);
    plan->steps[plan->nsteps++] = step;
}

static attn_status make_steps(attn_plan *plan)
{
    for (int i = 0; i < ATTN__WRAPPERS; i++) {
        const attn__wrapper *w = wrappers[i];
        if (plan->data[i])
            add_step(plan, (attn__step){.run = w->run, .data = plan->data[i]},
                     w->workspace(plan->data[i], &plan->canonical));
    }
    add_step(plan, (attn__step){.run = run_solver}, plan->recipe.workspace);
    plan->workspace = attn__alloc(plan->context, plan->workspace_size);
    plan->busy = attn__alloc(plan->context, sizeof *plan->busy);
    if (!plan->workspace || !plan->busy)
        return ATTN_ERROR_MEMORY;
    atomic_flag_clear(plan->busy);
    return ATTN_OK;
}

static attn_status fill_plan(attn_plan *plan, const attn_problem *problem, const attn_plan_options *options)
{
    attn_status status = make_canonical(plan, problem, options);
    if (status == ATTN_OK)
        status = wrap_canonical(plan);
    if (status == ATTN_OK)
        status = attn__choose_solver(plan, options);
    if (status != ATTN_OK)
        return status;
    status = wrap_canonical(plan);
    if (status == ATTN_OK && plan->solver->plan)
        status = plan->solver->plan(plan->context, &plan->canonical, &plan->recipe);
    return status == ATTN_OK ? make_steps(plan) : status;
}

static void log_plan(const attn_plan *plan)
{
    const attn_context *context = plan->context;
    char text[4096];
    if (!context->log)
        return;
    attn_plan_describe(plan, context->verbose > 0, text, sizeof text);
    context->log(context->log_user, text);
}

attn_status attn_plan_create(attn_plan **plan, attn_context *context, const attn_problem *problem,
                             const attn_plan_options *options)
{
    static const attn_plan_options defaults;
    *plan = NULL;
    ATTN__CALL(context);
    options = options ? options : &defaults;
    if (options->threads < 0 || options->threads > ATTN__MAX_THREADS)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "threads is %d; it must be 0 to %d", options->threads,
                          ATTN__MAX_THREADS);
    if (options->effort != ATTN_ESTIMATE && options->effort != ATTN_MEASURE)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "effort %d is neither estimate nor measure",
                          (int)options->effort);
    if (ATTN__CHECK_RESERVED(context, options, attn_plan_options) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    attn_status status = attn__check_problem(context, problem);
    attn_plan *made = status == ATTN_OK ? attn__alloc_zero(context, sizeof *made) : NULL;
    if (!made)
        return status == ATTN_OK ? ATTN_ERROR_MEMORY : status;
    made->context = context;
    status = fill_plan(made, problem, options);
    if (status != ATTN_OK) {
        attn_plan_destroy(made);
        return status;
    }
    log_plan(made);
    *plan = made;
    return ATTN_OK;
}

void attn_plan_destroy(attn_plan *plan)
{
    if (!plan)
        return;
    for (int i = 0; i < ATTN__WRAPPERS; i++)
        attn__free(plan->context, plan->data[i]);
    attn__free(plan->context, plan->recipe.data);
    attn__free(plan->context, plan->workspace);
    attn__free(plan->context, plan->busy);
    attn__free(plan->context, plan);
}

size_t attn_plan_workspace(const attn_plan *plan)
{
    return plan->workspace_size;
}

const char *attn_plan_solver(const attn_plan *plan)
{
    return plan->solver->name;
}

/* ---------------------------------------------------------------------------------------------- arrays */

/* Finds the span of elements used in a caller's array, which is the solver's span as changed by each wrapper. */
static bool find_span(const attn_plan *plan, attn_array array, attn__array_use *use, attn_span *span)
{
    attn__written written = plan->canonical.backward ? ATTN__WRITTEN_BACKWARD : ATTN__WRITTEN_FORWARD;
    bool used = attn__arrays_find(&plan->canonical, array, use);
    *span = (attn_span){0};
    if (!used)
        return false;
    bool empty = attn__extent_size(&use->extent) == 0;
    *span = (attn_span){use->dtype, attn__arrays_table[array].written == written, empty ? 0 : use->extent.low,
                        empty ? 0 : use->extent.high + 1};
    for (int i = ATTN__WRAPPERS - 1; used && i >= 0; i--)
        if (plan->data[i] && wrappers[i]->span)
            used = wrappers[i]->span(plan->data[i], array, span);
    if (!used)
        *span = (attn_span){0};
    return used;
}

bool attn_plan_span(const attn_plan *plan, attn_array array, attn_span *span)
{
    attn__array_use use;
    *span = (attn_span){0};
    return (int)array >= 0 && array < ATTN_ARRAY_COUNT && find_span(plan, array, &use, span);
}

static const char *missing_array(const attn_plan *plan, const attn_arrays *arrays)
{
    const attn__canonical *canonical = &plan->canonical;
    attn__array_use use;
    attn_span span;
    for (attn_array array = 0; array < ATTN_ARRAY_COUNT; array++)
        if (!attn__arrays_get(arrays, array) && find_span(plan, array, &use, &span) && !use.optional)
            return attn__arrays_table[array].name;
    bool weights = canonical->problem.flags & ATTN_WANT_WEIGHTS;
    bool empty = canonical->batch.size == 0 || canonical->query.size == 0 || canonical->key.size == 0;
    return weights && !empty && !arrays->weights ? "weights" : NULL;
}

/* Checks that no output begins where another array begins.  Overlapping spans are no error, because arrays may be
 * interleaved. */
static attn_status check_overlap(const attn_plan *plan, const attn_arrays *arrays)
{
    for (attn_array i = 0; i < ATTN_ARRAY_COUNT; i++) {
        bool output = attn__arrays_table[i].written != ATTN__WRITTEN_NEVER && attn__arrays_get(arrays, i);
        for (attn_array j = 0; output && j < ATTN_ARRAY_COUNT; j++) {
            attn_span a, b;
            if (i == j || attn__arrays_get(arrays, i) != attn__arrays_get(arrays, j) || !attn_plan_span(plan, i, &a) ||
                !attn_plan_span(plan, j, &b))
                continue;
            if (a.output && a.low < a.high && b.low < b.high)
                return attn__fail(
                    plan->context, ATTN_ERROR_ARGUMENT,
                    "the arrays '%s' and '%s' are the same array; an output must not overlap another array",
                    attn__arrays_table[i].name, attn__arrays_table[j].name);
        }
    }
    return ATTN_OK;
}

static attn_status check_offsets_of(attn_context *context, const char *name, const int32_t *offsets, int64_t sequences,
                                    int64_t longest, int64_t positions)
{
    for (int64_t s = 0; s <= sequences; s++) {
        int32_t before = s ? offsets[s - 1] : offsets[0];
        int64_t length = (int64_t)offsets[s] - before;
        if (offsets[s] < 0 || offsets[s] > positions)
            return attn__fail(context, ATTN_ERROR_ARGUMENT,
                              "%s[%lld] is %d; offsets must be 0 to %lld, the number of packed positions", name,
                              (long long)s, (int)offsets[s], (long long)positions);
        if (length < 0)
            return attn__fail(context, ATTN_ERROR_ARGUMENT,
                              "%s[%lld] is %d, less than the offset before it, %d; offsets must not decrease", name,
                              (long long)s, (int)offsets[s], (int)before);
        if (length > longest)
            return attn__fail(context, ATTN_ERROR_ARGUMENT,
                              "%s[%lld] is %d and the offset before it %d, so the sequence between them has %lld "
                              "positions; the problem allows at most %lld in a sequence",
                              name, (long long)s, (int)offsets[s], (int)before, (long long)length, (long long)longest);
    }
    return ATTN_OK;
}

static attn_status check_offsets(const attn_plan *plan, const attn_arrays *arrays)
{
    const attn__canonical *canonical = &plan->canonical;
    const attn_packed *packed = &canonical->problem.packed;
    if (!attn__is_packed(canonical))
        return ATTN_OK;
    int64_t sequences = canonical->batch.axis[packed->batch_dim].dim.n;
    attn_status status = check_offsets_of(plan->context, "q_offsets", arrays->q_offsets, sequences,
                                          canonical->query.axis[packed->query_dim].dim.n, packed->queries);
    if (status == ATTN_OK)
        status = check_offsets_of(plan->context, "k_offsets", arrays->k_offsets, sequences,
                                  canonical->key.axis[packed->key_dim].dim.n, packed->keys);
    return status;
}

static attn_status check_contents(const attn_plan *plan, const attn_arrays *arrays)
{
    attn_status status = check_offsets(plan, arrays);
    for (int i = 0; status == ATTN_OK && i < ATTN__WRAPPERS; i++)
        if (plan->data[i] && wrappers[i]->check)
            status = wrappers[i]->check(plan->context, plan->data[i], arrays);
    return status;
}

/* ------------------------------------------------------------------------------------------------- run */

static attn_status execute(const attn_plan *plan, const attn_arrays *arrays, const attn__drop_rows *rows,
                           void *workspace)
{
    const attn__execution execution = {*arrays, rows};
    char *scratch = workspace ? workspace : plan->workspace;
    const char *missing = missing_array(plan, arrays);
    if (missing)
        return attn__fail(plan->context, ATTN_ERROR_ARGUMENT, "the problem needs the array '%s', which is NULL",
                          missing);
    if (check_contents(plan, arrays) != ATTN_OK || check_overlap(plan, arrays) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    if ((uintptr_t)scratch % 64 != 0)
        return attn__fail(plan->context, ATTN_ERROR_ARGUMENT, "the workspace %p is not aligned to 64 bytes", workspace);
    if (!workspace && atomic_flag_test_and_set(plan->busy))
        return attn__fail(plan->context, ATTN_ERROR_BUSY,
                          "the workspace of the plan is in use by another thread; pass a workspace of your own");
    attn__step_run(plan->steps, &execution, scratch);
    if (!workspace)
        atomic_flag_clear(plan->busy);
    return ATTN_OK;
}

attn_status attn_plan_execute(const attn_plan *plan, const attn_arrays *arrays, void *workspace)
{
    ATTN__CALL(plan->context);
    if (!attn__all_zero(arrays->reserved, sizeof arrays->reserved))
        return attn__fail(plan->context, ATTN_ERROR_ARGUMENT, "attn_arrays: a reserved field is not NULL");
    return execute(plan, arrays, NULL, workspace);
}

attn_status attn__plan_execute(const attn_plan *plan, const attn_arrays *arrays, const attn__drop_rows *rows,
                               void *workspace)
{
    ATTN__CALL(plan->context);
    return execute(plan, arrays, rows, workspace);
}
