/* SPDX-License-Identifier: MIT
 * Runs a plan: checks the arrays, then runs its steps. */
#include "attend/plan/plan.h"

#include "attend/block/items.h"
#include "attend/problem/arrays.h"
#include "base/integers.h"

/* ---------------------------------------------------------------------------------------------- arrays */

static bool is_output(const attn__canonical *canonical, attn_array array)
{
    return attn__arrays_table[array].written == (canonical->backward ? ATTN__WRITTEN_BACKWARD : ATTN__WRITTEN_FORWARD);
}

/* Of the solver's array, corrected by each wrapper around it. */
bool attn_plan_span(const attn_plan *plan, attn_array array, attn_span *span)
{
    const attn__canonical *canonical = &plan->canonical;
    *span = (attn_span){0};
    if ((int)array < 0 || array >= ATTN_ARRAY_COUNT || !attn__arrays_used(canonical, array))
        return false;
    attn__extent extent = attn__arrays_extent(canonical, array);
    bool empty = attn__extent_size(&extent) == 0, used = true;
    attn_span found = {attn__arrays_dtype(&canonical->problem, array), is_output(canonical, array),
                       empty ? 0 : extent.low, empty ? 0 : extent.high + 1};
    for (int i = ATTN__WRAPPERS - 1; used && i >= 0; i--)
        if (plan->data[i] && attn__wrappers[i]->span)
            used = attn__wrappers[i]->span(plan->data[i], array, &found);
    if (used)
        *span = found;
    return used;
}

/* NULL, or the name of the first array that the problem needs and `arrays` lacks. */
static const char *missing_array(const attn_plan *plan, const attn_arrays *arrays)
{
    const attn__canonical *canonical = &plan->canonical;
    attn_span span;
    for (attn_array array = 0; array < ATTN_ARRAY_COUNT; array++)
        if (!attn__arrays_get(arrays, array) && attn_plan_span(plan, array, &span) &&
            !attn__arrays_is_empty(canonical, array))
            return attn__arrays_table[array].name;
    bool weights = canonical->problem.flags & ATTN_WANT_WEIGHTS;
    bool empty = canonical->batch.size == 0 || canonical->query.size == 0 || canonical->key.size == 0;
    return weights && !empty && !arrays->weights ? "weights" : NULL;
}

/* Outputs that begin where something else begins.  Other overlaps are not looked for: arrays may well be interleaved,
 * so that their spans say nothing. */
static attn_status check_overlap(const attn_plan *plan, const attn_arrays *arrays)
{
    for (attn_array i = ATTN_ARRAY_O; i < ATTN_ARRAY_COUNT; i++)
        for (attn_array j = 0; attn__arrays_get(arrays, i) && j < ATTN_ARRAY_COUNT; j++) {
            attn_span a, b;
            if (i == j || attn__arrays_get(arrays, i) != attn__arrays_get(arrays, j) || !attn_plan_span(plan, i, &a) ||
                !attn_plan_span(plan, j, &b))
                continue;
            if (a.output && a.low < a.high && b.low < b.high)
                return attn__fail(plan->context, ATTN_ERROR_ARGUMENT,
                                  "the arrays '%s' and '%s' are one; an output must not overlap "
                                  "anything else",
                                  attn__arrays_table[i].name, attn__arrays_table[j].name);
        }
    return ATTN_OK;
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

static attn_status check_contents(const attn_plan *plan, const attn_arrays *arrays)
{
    attn_status status = check_offsets(plan, arrays);
    for (int i = 0; status == ATTN_OK && i < ATTN__WRAPPERS; i++)
        if (plan->data[i] && attn__wrappers[i]->check)
            status = attn__wrappers[i]->check(plan->context, plan->data[i], arrays);
    return status;
}

/* ------------------------------------------------------------------------------------------------- run */

attn_status attn_plan_execute(const attn_plan *plan, const attn_arrays *arrays, void *workspace)
{
    char *scratch = workspace ? workspace : plan->workspace;
    attn__call_begin(plan->context);
    const char *missing = missing_array(plan, arrays);
    if (!attn__all_zero(arrays->reserved, sizeof arrays->reserved))
        return attn__fail(plan->context, ATTN_ERROR_ARGUMENT, "attn_arrays: a reserved field is not NULL");
    if (missing)
        return attn__fail(plan->context, ATTN_ERROR_ARGUMENT, "the problem needs the array '%s', which is NULL",
                          missing);
    if (check_contents(plan, arrays) != ATTN_OK || check_overlap(plan, arrays) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    if ((uintptr_t)scratch % 64 != 0)
        return attn__fail(plan->context, ATTN_ERROR_ARGUMENT, "the workspace %p is not aligned to 64 bytes", workspace);
    if (!workspace && atomic_flag_test_and_set(plan->busy))
        return ATTN_ERROR_BUSY;
    attn__step_run(plan->steps, arrays, scratch);
    if (!workspace)
        atomic_flag_clear(plan->busy);
    return ATTN_OK;
}
