/* SPDX-License-Identifier: MIT
 * The planner: check, canonical form, choice of a solver, chain of steps, workspace. */
#include "attend/plan/plan.h"

#include "attend/problem/problem.h"
#include "base/integers.h"
#include "base/parallel.h"

const attn__wrapper *const attn__wrappers[ATTN__WRAPPERS] = {&attn__wrapper_bias_index, &attn__wrapper_weights,
                                                             &attn__wrapper_private_gradients, &attn__wrapper_sinks};

static attn_status make_canonical(attn_plan *plan, const attn_problem *problem, const attn_plan_options *options)
{
    attn_problem resolved = *problem;
    attn_status status = ATTN_OK;
    attn__resolve_problem(&resolved);
    for (int i = 0; status == ATTN_OK && i < ATTN__WRAPPERS; i++)
        if (attn__wrappers[i]->resolve)
            status = attn__wrappers[i]->resolve(plan->context, &resolved, &plan->data[i]);
    attn__canonical_make(&plan->canonical, &resolved, plan->context->batch_invariant);
    plan->canonical.threads = options->threads ? options->threads : plan->context->threads;
    plan->canonical.isa = plan->context->isa;
    plan->canonical.caches = plan->context->caches;
    return status;
}

/* Wrappers change the canonical problem, before a solver is chosen and for the one that was. */
static attn_status wrap_canonical(attn_plan *plan)
{
    attn_status status = ATTN_OK;
    for (int i = 0; status == ATTN_OK && i < ATTN__WRAPPERS; i++)
        if (attn__wrappers[i]->canonical)
            status = attn__wrappers[i]->canonical(plan->context, &plan->canonical, plan->solver, &plan->data[i]);
    return status;
}

/* Multiply-adds, and what moves the operands: a number takes as long as some of them. */
static double work_of(const attn_plan *plan)
{
    const double each = 16;
    const attn__canonical *t = &plan->canonical;
    double rows = (double)t->batch.size * (double)(t->query.size + t->key.size);
    return attn__solver_cost(plan->solver, t) + each * rows * (double)(t->contract.size + t->value.size);
}

/* Waking a thread takes some microseconds, as long as about this many multiply-adds.  A named solver gets exactly the
 * threads requested. */
static void spare_threads(attn_plan *plan, const attn_plan_options *options)
{
    const double worth = 2e6;
    double most = work_of(plan) / worth;
    if (!options->solver && most < plan->canonical.threads)
        plan->canonical.threads = most > 1 ? (int)most : 1;
}

static void run_solver(const attn__step *step, const attn_arrays *arrays, char *workspace)
{
    const attn_plan *plan = step->plan;
    plan->solver->apply(&plan->canonical, &plan->recipe, arrays, workspace + step->workspace_at);
}

/* A step after those there are; its part of the workspace begins on a cache line. */
static void add_step(attn_plan *plan, attn__step step, size_t workspace)
{
    size_t end = attn__size_add(plan->workspace_size, 63);
    step.plan = plan;
    step.workspace_at = end == SIZE_MAX ? 0 : end / 64 * 64;
    step.child = step.run == run_solver ? NULL : &plan->steps[plan->nsteps + 1];
    plan->workspace_size = end == SIZE_MAX ? SIZE_MAX : attn__size_add(step.workspace_at, workspace);
    plan->steps[plan->nsteps++] = step;
}

/* The chain of steps and the workspace for all of them. */
static attn_status make_steps(attn_plan *plan)
{
    for (int i = 0; i < ATTN__WRAPPERS; i++) {
        const attn__wrapper *w = attn__wrappers[i];
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
    spare_threads(plan, options);
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
    attn__call_begin(context);
    options = options ? options : &defaults;
    if (options->threads < 0 || options->threads > ATTN__MAX_THREADS)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "%d threads: it must be 0 to %d", options->threads,
                          ATTN__MAX_THREADS);
    if (options->effort != ATTN_ESTIMATE && options->effort != ATTN_MEASURE)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "effort %d is neither estimate nor measure",
                          (int)options->effort);
    if (!attn__all_zero(options->reserved, sizeof options->reserved))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "attn_plan_options: a reserved field is not zero");
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
