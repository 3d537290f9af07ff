/* SPDX-License-Identifier: MIT
 * The planner: check, canonical form, choice of a solver, workspace. */
#include "attend/plan/plan.h"

#include "attend/problem/problem.h"
#include "base/integers.h"
#include "base/parallel.h"

#include <string.h>

static bool is_empty(const attn__canonical *canonical)
{
    return canonical->batch.size == 0 || canonical->query.size == 0 || canonical->key.size == 0 ||
           canonical->contract.size == 0 || canonical->value.size == 0;
}

static const char *extra_refusal(unsigned unknown)
{
    static const struct {
        unsigned bit;
        const char *why;
    } reasons[] = {{ATTN__PACKED, "packed sequences"},
                   {ATTN__SOFTCAP, "scores are capped"},
                   {ATTN__SINKS, "sinks"},
                   {ATTN__DLSE, "a gradient of the log-sum-exp"},
                   {ATTN__BIAS_MEETS, "pairs share numbers of the bias"},
                   {ATTN__BLOCKS, "a mask of blocks"},
                   {ATTN__BF16_KEYS, "keys and values of another type than the queries"},
                   {ATTN__BATCH_INVARIANT, "the order of its sums depends on lengths"}};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (unknown & reasons[i].bit)
            return reasons[i].why;
    return NULL;
}

/* The last solver takes problems without elements (outputs may still have some, sums over nothing), so that no other
 * solver has to. */
const char *attn__solver_refusal(const attn__solver *solver, const attn__canonical *canonical)
{
    if (is_empty(canonical) && solver != attn__solvers[attn__solver_count - 1])
        return "a role is empty";
    const char *unknown = extra_refusal(canonical->extras & ~solver->extras);
    return unknown ? unknown : solver->refuse ? solver->refuse(canonical) : NULL;
}

double attn__solver_cost(const attn__solver *solver, const attn__canonical *canonical)
{
    double pairs = (double)canonical->batch.size * (double)canonical->query.size * (double)canonical->key.size;
    if (solver->cost)
        return solver->cost(canonical);
    return pairs * (double)(canonical->contract.size + canonical->value.size);
}

const attn__solver *attn__solver_by_name(const char *name)
{
    for (int i = 0; i < attn__solver_count; i++)
        if (strcmp(attn__solvers[i]->name, name) == 0)
            return attn__solvers[i];
    return NULL;
}

static const attn__solver *cheapest(const attn__canonical *canonical)
{
    const attn__solver *best = NULL;
    double least = 0;
    for (int i = 0; i < attn__solver_count; i++) {
        if (attn__solver_refusal(attn__solvers[i], canonical))
            continue;
        double cost = attn__solver_cost(attn__solvers[i], canonical);
        if (!best || cost < least) {
            best = attn__solvers[i];
            least = cost;
        }
    }
    return best;
}

static attn_status choose_by_name(attn_plan *plan, const char *name)
{
    plan->solver = attn__solver_by_name(name);
    plan->how = "asked for";
    if (!plan->solver)
        return attn__fail(plan->context, ATTN_ERROR_ARGUMENT, "there is no solver '%s'", name);
    const char *refusal = attn__solver_refusal(plan->solver, &plan->canonical);
    if (refusal)
        return attn__fail(plan->context, ATTN_ERROR_UNSUPPORTED, "solver %s: %s", name, refusal);
    return ATTN_OK;
}

static attn_status choose_measured(attn_plan *plan, uint64_t signature)
{
    plan->solver = attn__measure(plan->context, &plan->canonical);
    plan->how = "measured";
    return plan->solver ? attn__wisdom_note(plan->context, signature, plan->solver) : ATTN_ERROR_MEMORY;
}

static attn_status choose_solver(attn_plan *plan, const attn_plan_options *options)
{
    if (options->solver)
        return choose_by_name(plan, options->solver);
    uint64_t signature = attn__canonical_signature(&plan->canonical);
    plan->solver = attn__wisdom_find(plan->context, signature);
    plan->how = "remembered";
    if (plan->solver && !attn__solver_refusal(plan->solver, &plan->canonical))
        return ATTN_OK;
    if (options->effort == ATTN_MEASURE)
        return choose_measured(plan, signature);
    plan->solver = cheapest(&plan->canonical);
    plan->how = "by rule";
    return plan->solver ? ATTN_OK : attn__fail(plan->context, ATTN_ERROR_INTERNAL, "no solver accepts the problem");
}

/* If only weights are requested, the plan adds a contiguous log-sum-exp of its own, from which they follow. */
static void add_own_lse(attn_problem *p)
{
    int64_t stride = 1;
    p->flags |= ATTN_WANT_LSE;
    for (int i = p->ndims - 1; i >= 0; i--) {
        if (p->dims[i].role > ATTN_ROLE_QUERY)
            continue;
        if ((p->flags & ATTN_WITH_PACKED) && i == p->packed.batch_dim)
            continue; /* the offsets say where its rows are */
        p->dims[i].lse = stride;
        stride *= attn__operand_length(p, i, ATTN__OP_LSE);
    }
}

static attn_status copy_picks(attn_plan *plan)
{
    attn_problem *p = &plan->canonical.problem;
    for (int i = 0; i < p->npicks; i++) {
        size_t size = attn__size_mul((size_t)p->picks[i].n, sizeof *plan->picks[i]);
        plan->picks[i] = attn__alloc(plan->context, size);
        if (!plan->picks[i])
            return ATTN_ERROR_MEMORY;
        if (size)
            memcpy(plan->picks[i], p->picks[i].index, size);
        p->picks[i].index = plan->picks[i];
    }
    return ATTN_OK;
}

static void make_canonical(attn_plan *plan, const attn_problem *problem, const attn_plan_options *options)
{
    attn_problem resolved = *problem;
    attn__resolve_problem(&resolved);
    plan->own_lse = (resolved.flags & ATTN_WANT_WEIGHTS) && !(resolved.flags & ATTN_WANT_LSE);
    if (plan->own_lse)
        add_own_lse(&resolved);
    attn__bias_index_make(&plan->bias_index, &resolved);
    attn__canonical_make(&plan->canonical, &resolved, plan->context->batch_invariant);
    plan->canonical.threads = options->threads ? options->threads : plan->context->threads;
    plan->canonical.isa = plan->context->isa;
    plan->canonical.caches = plan->context->caches;
    attn__private_gradients_make(&plan->private_gradients, &plan->canonical);
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

static size_t round_up(size_t size)
{
    return attn__size_add(size, 63) == SIZE_MAX ? SIZE_MAX : (size + 63) / 64 * 64;
}

static attn_status make_workspace(attn_plan *plan)
{
    const attn__canonical *canonical = &plan->canonical;
    size_t lse = 0, weights = 0;
    attn__extent rows = attn__operand_extent(canonical, ATTN__OP_LSE);
    if (plan->own_lse)
        lse = attn__size_mul(attn__extent_size(&rows), sizeof(double));
    if (canonical->problem.flags & ATTN_WANT_WEIGHTS)
        weights = attn__weights_size(canonical);
    plan->lse_at = round_up(plan->recipe.workspace);
    plan->weights_at = attn__size_add(plan->lse_at, round_up(lse));
    plan->sinks_at = attn__size_add(plan->weights_at, round_up(weights));
    plan->sums_at = attn__size_add(plan->sinks_at, round_up(attn__sink_gradients_size(canonical)));
    plan->bias_index.threads = canonical->threads;
    plan->bias_at = attn__size_add(plan->sums_at, round_up(plan->private_gradients.bytes));
    plan->workspace_size = attn__size_add(plan->bias_at, attn__bias_index_size(&plan->bias_index));
    plan->workspace = attn__alloc(plan->context, plan->workspace_size);
    return plan->workspace ? ATTN_OK : ATTN_ERROR_MEMORY;
}

static attn_status fill_plan(attn_plan *plan, const attn_problem *problem, const attn_plan_options *options)
{
    make_canonical(plan, problem, options);
    attn_status status = copy_picks(plan);
    if (status == ATTN_OK)
        status = choose_solver(plan, options);
    if (status == ATTN_OK)
        spare_threads(plan, options);
    if (status == ATTN_OK && plan->solver->adds_often)
        attn__private_gradients_more(&plan->private_gradients, &plan->canonical,
                                     plan->solver->adds_often(&plan->canonical));
    if (status == ATTN_OK && plan->solver->plan)
        status = plan->solver->plan(plan->context, &plan->canonical, &plan->recipe);
    return status == ATTN_OK ? make_workspace(plan) : status;
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
    atomic_flag_clear(&made->busy);
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
    for (int i = 0; i < ATTN_MAX_PICKS; i++)
        attn__free(plan->context, plan->picks[i]);
    attn__free(plan->context, plan->recipe.data);
    attn__free(plan->context, plan->workspace);
    attn__free(plan->context, plan);
}

size_t attn_plan_workspace(const attn_plan *plan)
{
    return plan->workspace_size;
}

double attn_plan_flops(const attn_plan *plan)
{
    return attn__canonical_flops(&plan->canonical);
}

const char *attn_plan_solver(const attn_plan *plan)
{
    return plan->solver->name;
}
