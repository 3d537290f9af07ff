/* SPDX-License-Identifier: MIT
 * The choice of a solver: by name, by what was measured before, by timing each on scratch arrays of the problem's own
 * shape, or by rule. */
#include "attend/plan/plan.h"

#include "attend/block/element.h"
#include "attend/problem/arrays.h"
#include "base/clock.h"

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

/* ------------------------------------------------------------------------------------------ measuring */

enum { MOST_RUNS = 5 };

typedef struct scratch {
    attn_context *context;
    void *blocks[ATTN_ARRAY_COUNT];
    int n;
    bool failed;
} scratch;

/* An array that covers the extent, filled with small numbers; the address of its offset 0. */
static void *make_array(scratch *s, attn_dtype dtype, const attn__extent *extent)
{
    size_t n = attn__extent_size(extent), size = attn_dtype_size(dtype);
    char *block = attn__alloc_zero(s->context, attn__size_mul(n ? n : 1, size));
    s->failed = s->failed || !block;
    s->blocks[s->n++] = block;
    if (!block)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        double x = (double)(i * 37 % 101) / 101 - 0.5;
        if (dtype == ATTN_U8)
            ((uint8_t *)block)[i] = 1;
        else if (dtype == ATTN_I32)
            ((int32_t *)(void *)block)[i] = INT32_MAX;
        else
            attn__store(dtype, block, (int64_t)i, x);
    }
    return n ? block - extent->low * (int64_t)size : block;
}

/* Sequences of even lengths. */
static void fill_offsets(int32_t *offsets, int64_t sequences, int64_t longest, int64_t positions)
{
    int64_t each = sequences && positions / sequences < longest ? positions / sequences : longest;
    for (int64_t i = 0; offsets && i <= sequences; i++)
        offsets[i] = (int32_t)(i * each < positions ? i * each : positions);
}

static void make_arrays(scratch *s, const attn__canonical *canonical, attn_arrays *a)
{
    const attn_packed *p = &canonical->problem.packed;
    for (attn_array array = 0; array < ATTN_ARRAY_COUNT; array++) {
        attn__extent extent = attn__arrays_extent(canonical, array);
        if (attn__arrays_used(canonical, array))
            attn__arrays_set(a, array, make_array(s, attn__arrays_dtype(&canonical->problem, array), &extent));
    }
    if (!(canonical->extras & ATTN__PACKED) || s->failed)
        return;
    int64_t sequences = canonical->batch.axis[p->batch_dim].dim.n;
    fill_offsets(attn__arrays_get(a, ATTN_ARRAY_Q_OFFSETS), sequences, canonical->query.axis[p->query_dim].dim.n,
                 p->queries);
    fill_offsets(attn__arrays_get(a, ATTN_ARRAY_K_OFFSETS), sequences, canonical->key.axis[p->key_dim].dim.n, p->keys);
}

/* Least seconds of a few runs; fewer of a slow solver.  Negative if it cannot be planned. */
static double time_solver(attn_context *context, const attn__solver *solver, const attn__canonical *canonical,
                          const attn_arrays *arrays)
{
    attn__recipe recipe = {0};
    double least = -1, spent = 0;
    void *workspace = NULL;
    if (!solver->plan || solver->plan(context, canonical, &recipe) == ATTN_OK)
        workspace = attn__alloc(context, recipe.workspace);
    for (int run = 0; workspace && run < MOST_RUNS && spent < 0.5; run++) {
        double begin = attn__now();
        solver->apply(canonical, &recipe, arrays, workspace);
        double took = attn__seconds_since(begin);
        spent += took;
        if (least < 0 || took < least)
            least = took;
    }
    attn__free(context, workspace);
    attn__free(context, recipe.data);
    return least;
}

static const attn__solver *time_solvers(attn_context *context, const attn__canonical *canonical,
                                        const attn_arrays *arrays)
{
    const attn__solver *best = NULL;
    double least = 0;
    for (int i = 0; i < attn__solver_count; i++) {
        bool last = i == attn__solver_count - 1;
        if (attn__solver_refusal(attn__solvers[i], canonical) || (last && best)) /* the reference never wins a race */
            continue;
        double took = time_solver(context, attn__solvers[i], canonical, arrays);
        if (took >= 0 && (!best || took < least)) {
            best = attn__solvers[i];
            least = took;
        }
    }
    return best;
}

/* The fastest of the solvers that accept the problem, timed on scratch arrays; NULL if memory runs out. */
static const attn__solver *fastest(attn_context *context, const attn__canonical *canonical)
{
    scratch s = {.context = context};
    attn_arrays arrays = {0};
    make_arrays(&s, canonical, &arrays);
    bool clean = attn_context_status(context) == ATTN_OK;
    const attn__solver *best = s.failed ? NULL : time_solvers(context, canonical, &arrays);
    if (best && clean) /* a solver that found no memory lost the race; nothing failed */
        attn_context_clear_error(context);
    for (int i = 0; i < s.n; i++)
        attn__free(context, s.blocks[i]);
    return best;
}

/* --------------------------------------------------------------------------------------------- choice */

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
    plan->solver = fastest(plan->context, &plan->canonical);
    plan->how = "measured";
    return plan->solver ? attn__wisdom_note(plan->context, signature, plan->solver) : ATTN_ERROR_MEMORY;
}

attn_status attn__choose_solver(attn_plan *plan, const attn_plan_options *options)
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
