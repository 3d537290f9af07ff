/* SPDX-License-Identifier: MIT
 * Runs a plan: checks the arrays, runs the solver, computes the requested weights. */
#include "attend/plan/plan.h"

#include "attend/scores/score.h"
#include "attend/problem/operand.h"
#include "attend/block/packed_sequences.h"
#include "base/integers.h"

#include <string.h>

static bool is_empty(const attn__canonical *canonical, attn__operand op)
{
    for (attn_role role = ATTN_ROLE_BATCH; role <= ATTN_ROLE_VALUE; role++)
        if ((attn__operand_table[op].roles >> role & 1) && attn__group_of(canonical, role)->size == 0)
            return true;
    return false;
}

static bool reads_channels(const attn__canonical *canonical, attn__operand op)
{
    const attn_problem *p = &canonical->problem;
    attn_relative_kind kind = op == ATTN__OP_Q ? ATTN_RELATIVE_QUERY : ATTN_RELATIVE_KEY;
    bool reads = !attn__score_of(p)->blind;
    for (int i = 0; i < p->nrelatives; i++)
        reads = reads || p->relatives[i].kind == kind;
    return reads;
}

static const char *missing_operand(const attn__canonical *canonical, const attn_arrays *a)
{
    const void *const arrays[ATTN__OPERANDS] = {
        [ATTN__OP_Q] = a->q,         [ATTN__OP_K] = a->k,           [ATTN__OP_V] = a->v,
        [ATTN__OP_O] = a->o,         [ATTN__OP_BIAS] = a->bias,     [ATTN__OP_MASK] = a->mask,
        [ATTN__OP_LENS] = a->lens,   [ATTN__OP_LSE] = a->lse,       [ATTN__OP_WEIGHTS] = a->weights,
        [ATTN__OP_W] = a->w,         [ATTN__OP_DQ] = a->dq,         [ATTN__OP_DK] = a->dk,
        [ATTN__OP_DV] = a->dv,       [ATTN__OP_DOUT] = a->dout,     [ATTN__OP_DBIAS] = a->dbias,
        [ATTN__OP_SINKS] = a->sinks, [ATTN__OP_BLOCKS] = a->blocks,
    };
    for (attn__operand op = 0; op < ATTN__OPERANDS; op++) {
        if (arrays[op] || !attn__operand_used(&canonical->problem, op) || is_empty(canonical, op))
            continue;
        if ((op == ATTN__OP_Q || op == ATTN__OP_K) && !reads_channels(canonical, op))
            continue;
        return attn__operand_table[op].name;
    }
    return NULL;
}

const char *attn__missing_array(const attn__canonical *canonical, const attn_arrays *a)
{
    static const char *const tables[ATTN_MAX_RELATIVE] = {"table[0]", "table[1]", "table[2]",
                                                          "table[3]", "table[4]", "table[5]"};
    static const char *const dtables[ATTN_MAX_RELATIVE] = {"dtable[0]", "dtable[1]", "dtable[2]",
                                                           "dtable[3]", "dtable[4]", "dtable[5]"};
    const attn_problem *p = &canonical->problem;
    const char *missing = missing_operand(canonical, a);
    bool second = attn__score_of(p)->vectors > 1 && canonical->contract.size > 0;
    for (int i = 0; !missing && i < p->nrelatives; i++) {
        if (!a->table[i] && p->relatives[i].rows > 0)
            missing = tables[i];
        else if (!a->dtable[i] && p->relatives[i].rows > 0 && (p->flags & ATTN_WANT_DTABLES))
            missing = dtables[i];
    }
    if (!missing && attn__is_packed(canonical))
        missing = !a->q_offsets ? "q_offsets" : !a->k_offsets ? "k_offsets" : NULL;
    if (!missing && (p->flags & ATTN_WITH_BIAS_INDEX) && !a->bias_index && !is_empty(canonical, ATTN__OP_BIAS))
        missing = "bias_index";
    if (!missing && (canonical->extras & ATTN__DLSE) && !a->dlse && !is_empty(canonical, ATTN__OP_LSE))
        missing = "dlse";
    if (!missing && (p->flags & ATTN_WANT_DSINKS) && !a->dsinks && !is_empty(canonical, ATTN__OP_SINKS))
        missing = "dsinks";
    if (!missing && second && !a->w2)
        missing = "w2";
    if (!missing && (p->flags & ATTN_WANT_DW) && canonical->contract.size > 0 && !a->dw)
        missing = "dw";
    if (!missing && (p->flags & ATTN_WANT_DW) && second && !a->dw2)
        missing = "dw2";
    return missing;
}

/* All arrays in the order of attn_array. */
static void list_arrays(const attn_arrays *a, const void *list[ATTN_ARRAY_COUNT])
{
    const void *const first[ATTN_ARRAY_TABLE] = {
        [ATTN_ARRAY_Q] = a->q,
        [ATTN_ARRAY_K] = a->k,
        [ATTN_ARRAY_V] = a->v,
        [ATTN_ARRAY_BIAS] = a->bias,
        [ATTN_ARRAY_MASK] = a->mask,
        [ATTN_ARRAY_LENS] = a->lens,
        [ATTN_ARRAY_W] = a->w,
        [ATTN_ARRAY_W2] = a->w2,
        [ATTN_ARRAY_O] = a->o,
        [ATTN_ARRAY_Q_OFFSETS] = a->q_offsets,
        [ATTN_ARRAY_K_OFFSETS] = a->k_offsets,
        [ATTN_ARRAY_BIAS_INDEX] = a->bias_index,
        [ATTN_ARRAY_SINKS] = a->sinks,
        [ATTN_ARRAY_BLOCKS] = a->blocks,
        [ATTN_ARRAY_DLSE] = a->dlse,
        [ATTN_ARRAY_DSINKS] = a->dsinks,
        [ATTN_ARRAY_LSE] = a->lse,
        [ATTN_ARRAY_DOUT] = a->dout,
        [ATTN_ARRAY_DQ] = a->dq,
        [ATTN_ARRAY_DK] = a->dk,
        [ATTN_ARRAY_DV] = a->dv,
        [ATTN_ARRAY_DBIAS] = a->dbias,
        [ATTN_ARRAY_DW] = a->dw,
        [ATTN_ARRAY_DW2] = a->dw2,
    };
    memcpy(list, first, sizeof first);
    for (int i = 0; i < ATTN_MAX_RELATIVE; i++) {
        list[ATTN_ARRAY_TABLE + i] = a->table[i];
        list[ATTN_ARRAY_DTABLE + i] = a->dtable[i];
    }
}

/* Outputs that begin where something else begins.  Other overlaps are not looked for: arrays may well be interleaved,
 * so that their spans say nothing. */
static bool share_an_element(const attn_plan *plan, const attn_arrays *arrays, attn_array *output, attn_array *other)
{
    const void *list[ATTN_ARRAY_COUNT];
    list_arrays(arrays, list);
    for (attn_array i = ATTN_ARRAY_O; i < ATTN_ARRAY_COUNT; i++)
        for (attn_array j = 0; list[i] && j < ATTN_ARRAY_COUNT; j++) {
            attn_span a, b;
            if (i == j || list[i] != list[j] || !attn_plan_span(plan, i, &a) || !attn_plan_span(plan, j, &b))
                continue;
            *output = i;
            *other = j;
            if (a.output && a.low < a.high && b.low < b.high)
                return true;
        }
    return false;
}

static attn_status refuse_overlap(const attn_plan *plan, attn_array output, attn_array other)
{
    static const char *const names[ATTN_ARRAY_COUNT] = {
        "q",         "k",         "v",          "bias",     "mask",     "lens",     "w",         "w2",
        "q_offsets", "k_offsets", "bias_index", "sinks",    "dlse",     "blocks",   "o",         "lse",
        "dout",      "dq",        "dk",         "dv",       "dbias",    "dw",       "dw2",       "dsinks",
        "table[0]",  "table[1]",  "table[2]",   "table[3]", "table[4]", "table[5]", "dtable[0]", "dtable[1]",
        "dtable[2]", "dtable[3]", "dtable[4]",  "dtable[5]"};
    return attn__fail(plan->context, ATTN_ERROR_ARGUMENT,
                      "the arrays '%s' and '%s' are one; an output must not overlap "
                      "anything else",
                      names[output], names[other]);
}

static attn_status check_offsets(const attn_plan *plan, const attn_arrays *arrays)
{
    int64_t at;
    const char *name = attn__is_packed(&plan->canonical) ? attn__packed_fault(&plan->canonical, arrays, &at) : NULL;
    if (!name)
        return ATTN_OK;
    const int32_t *offsets = name[0] == 'q' ? arrays->q_offsets : arrays->k_offsets;
    return attn__fail(
        plan->context, ATTN_ERROR_ARGUMENT,
        "%s[%lld] is %d: offsets must not fall, nor pass the end of the packed positions, nor grow by more "
        "than the longest sequence",
        name, (long long)at, (int)offsets[at]);
}

static attn_status check_bias_index(const attn_plan *plan, const attn_arrays *arrays)
{
    int64_t at;
    if (!arrays->bias_index || !attn__bias_index_fault(&plan->bias_index, arrays, &at))
        return ATTN_OK;
    return attn__fail(plan->context, ATTN_ERROR_ARGUMENT, "bias_index[%lld] is %d; the table has the rows 0 to %lld",
                      (long long)at, (int)arrays->bias_index[at],
                      (long long)plan->canonical.problem.bias_index.rows - 1);
}

static void run(const attn_plan *plan, const attn_arrays *arrays, char *workspace)
{
    attn_arrays mine = *arrays;
    attn__bias_index_begin(&plan->bias_index, &mine, workspace + plan->bias_at);
    attn_arrays spread = mine;
    attn__private_gradients_begin(&plan->private_gradients, &mine, workspace + plan->sums_at);
    plan->solver->apply(&plan->canonical, &plan->recipe, &mine, workspace);
    attn__private_gradients_end(&plan->private_gradients, &spread, workspace + plan->sums_at);
    attn__bias_index_end(&plan->bias_index, arrays, workspace + plan->bias_at);
    attn__sink_gradients_run(&plan->canonical, arrays, workspace + plan->sinks_at);
    if (plan->canonical.problem.flags & ATTN_WANT_WEIGHTS)
        attn__weights_run(&plan->canonical, &spread, workspace + plan->weights_at);
}

attn_status attn_plan_execute(const attn_plan *plan, const attn_arrays *arrays, void *workspace)
{
    attn_arrays mine = *arrays;
    char *scratch = workspace ? workspace : plan->workspace;
    atomic_flag *busy = (atomic_flag *)&plan->busy; /* the plan itself was never const */
    attn__call_begin(plan->context);
    if (plan->own_lse)
        mine.lse = scratch + plan->lse_at;
    const char *missing = attn__missing_array(&plan->canonical, &mine);
    if (!attn__all_zero(mine.reserved, sizeof mine.reserved))
        return attn__fail(plan->context, ATTN_ERROR_ARGUMENT, "attn_arrays: a reserved field is not NULL");
    if (missing)
        return attn__fail(plan->context, ATTN_ERROR_ARGUMENT, "the problem needs the array '%s', which is NULL",
                          missing);
    attn_array output, other;
    if (check_offsets(plan, &mine) != ATTN_OK || check_bias_index(plan, &mine) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    if (share_an_element(plan, &mine, &output, &other))
        return refuse_overlap(plan, output, other);
    if ((uintptr_t)scratch % 64 != 0)
        return attn__fail(plan->context, ATTN_ERROR_ARGUMENT, "the workspace %p is not aligned to 64 bytes", workspace);
    if (!workspace && atomic_flag_test_and_set(busy))
        return ATTN_ERROR_BUSY;
    run(plan, &mine, scratch);
    if (!workspace)
        atomic_flag_clear(busy);
    return ATTN_OK;
}
