/* SPDX-License-Identifier: MIT
 * Times the solvers that accept a problem on scratch arrays of its own shape. */
#include "attend/plan/plan.h"

#include "attend/block/element.h"
#include "attend/problem/extent.h"
#include "base/clock.h"

enum { ARRAYS = ATTN__OPERANDS + 7 + 2 * ATTN_MAX_RELATIVE, MOST_RUNS = 5 };

typedef struct scratch {
    attn_context *context;
    void *blocks[ARRAYS];
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

static void *make_operand(scratch *s, const attn__canonical *canonical, attn__operand op)
{
    attn__extent extent = attn__operand_extent(canonical, op);
    return make_array(s, attn__operand_dtype(&canonical->problem, op), &extent);
}

static void make_outputs(scratch *s, const attn__canonical *canonical, attn_arrays *a)
{
    a->o = make_operand(s, canonical, ATTN__OP_O);
    a->lse = make_operand(s, canonical, ATTN__OP_LSE);
    a->dout = make_operand(s, canonical, ATTN__OP_DOUT);
    a->dq = make_operand(s, canonical, ATTN__OP_DQ);
    a->dk = make_operand(s, canonical, ATTN__OP_DK);
    a->dv = make_operand(s, canonical, ATTN__OP_DV);
    a->dbias = make_operand(s, canonical, ATTN__OP_DBIAS);
    a->dw = make_operand(s, canonical, ATTN__OP_W);
    a->dw2 = make_operand(s, canonical, ATTN__OP_W);
    a->sinks = make_operand(s, canonical, ATTN__OP_SINKS);
    a->dlse = make_operand(s, canonical, ATTN__OP_LSE);
}

/* Sequences of even lengths. */
static const int32_t *make_offsets(scratch *s, int64_t sequences, int64_t longest, int64_t positions)
{
    attn__extent extent = {.n = 1, .length = {sequences + 1}, .stride = {1}, .high = sequences};
    int32_t *offsets = make_array(s, ATTN_I32, &extent);
    int64_t each = sequences && positions / sequences < longest ? positions / sequences : longest;
    for (int64_t i = 0; offsets && i <= sequences; i++)
        offsets[i] = (int32_t)(i * each < positions ? i * each : positions);
    return offsets;
}

static void make_packed(scratch *s, const attn__canonical *canonical, attn_arrays *a)
{
    const attn_packed *p = &canonical->problem.packed;
    int64_t n = canonical->batch.axis[p->batch_dim].dim.n;
    a->q_offsets = make_offsets(s, n, canonical->query.axis[p->query_dim].dim.n, p->queries);
    a->k_offsets = make_offsets(s, n, canonical->key.axis[p->key_dim].dim.n, p->keys);
}

static void make_arrays(scratch *s, const attn__canonical *canonical, attn_arrays *a)
{
    a->q = make_operand(s, canonical, ATTN__OP_Q);
    a->k = make_operand(s, canonical, ATTN__OP_K);
    a->v = make_operand(s, canonical, ATTN__OP_V);
    a->bias = make_operand(s, canonical, ATTN__OP_BIAS);
    a->mask = make_operand(s, canonical, ATTN__OP_MASK);
    a->lens = make_operand(s, canonical, ATTN__OP_LENS);
    a->blocks = make_operand(s, canonical, ATTN__OP_BLOCKS);
    a->w = make_operand(s, canonical, ATTN__OP_W);
    a->w2 = a->w;
    make_outputs(s, canonical, a);
    if (canonical->extras & ATTN__PACKED)
        make_packed(s, canonical, a);
    for (int i = 0; i < canonical->problem.nrelatives; i++) {
        attn__extent extent = attn__table_extent(canonical, i);
        attn_dtype side = attn__operand_dtype(&canonical->problem, ATTN__OP_W);
        a->table[i] = make_array(s, side, &extent);
        a->dtable[i] = make_array(s, side, &extent);
    }
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

const attn__solver *attn__measure(attn_context *context, const attn__canonical *canonical)
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
