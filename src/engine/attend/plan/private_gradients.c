/* SPDX-License-Identifier: MIT
 *
 * private_gradients.c - the wrapper of gradients that consist of several terms and are added to the caller's values.
 * Adding each term in place would round it to the last digit of the caller's value.  This wrapper therefore sums the
 * terms in the workspace, from zero, and adds the sum to the caller's values once.  It handles gradients that are
 * broadcast along a dim, and gradients that a solver adds to block by block (attn__solver.adds_often).
 */
#include "attend/plan/plan.h"

#include "attend/block/gradient_sums.h"
#include "attend/problem/arrays.h"

#include <string.h>

enum { GRADIENTS = 4 };

static const attn_array arrays_of[GRADIENTS] = {ATTN_ARRAY_DQ, ATTN_ARRAY_DK, ATTN_ARRAY_DV, ATTN_ARRAY_DBIAS};
static const unsigned wishes[GRADIENTS] = {ATTN_WANT_DQ, ATTN_WANT_DK, ATTN_WANT_DV, ATTN_WANT_DBIAS};

typedef struct private_gradients {
    struct {
        attn__extent given; /* axes of the caller's array; none if the solver writes to that array */
        int64_t count;      /* number of elements of the sum, which is contiguous; 0 without a sum */
        size_t at;          /* offset of this sum in bytes from the first sum */
    } of[GRADIENTS];
    size_t bytes;
} private_gradients;

static attn__operand operand_of(int i)
{
    return attn__arrays_table[arrays_of[i]].operand;
}

/* Gives an operand dense strides in the axis order of attn__operand_extent. Returns its number of elements. */
static int64_t make_dense(attn__canonical *canonical, attn__operand op)
{
    int64_t count = 1;
    for (attn_role role = ATTN_ROLE_VALUE; role >= ATTN_ROLE_BATCH; role--) {
        attn__group *group = attn__group_at(canonical, role);
        for (int i = group->n - 1; i >= 0; i--) {
            attn_dim *dim = &group->axis[i].dim;
            if (attn__stride(dim, op) == 0)
                continue;
            *attn__stride_at(dim, op) = count;
            count *= attn__operand_length(&canonical->problem, dim, i, op);
        }
    }
    return count;
}

static void make_private(private_gradients *sums, attn__canonical *canonical, int i, const attn__extent *given)
{
    sums->of[i].given = *given;
    sums->of[i].count = make_dense(canonical, operand_of(i));
    sums->of[i].at = sums->bytes;
    size_t bytes = attn__size_mul((size_t)sums->of[i].count, sizeof(float));
    sums->bytes = attn__size_add(sums->bytes, attn__size_add(bytes, 63));
    sums->bytes -= sums->bytes == SIZE_MAX ? 0 : sums->bytes % 64;
}

/* Reports whether gradients can be summed in the workspace. Windows prevent it, because their taps share elements. If
 * sums are needed but not possible, solvers refuse the problem. */
static bool applies(const attn__canonical *canonical)
{
    const attn_problem *p = &canonical->problem;
    return canonical->backward && p->accumulate && p->dtype == ATTN_F32 && !p->nwindows;
}

/* Gives contiguous strides to gradients that are broadcast. Once a solver is chosen, also to those that it adds to
 * several times. */
static attn_status canonical(attn_context *context, attn__canonical *canonical, const attn__solver *solver, void **data)
{
    if (!applies(canonical))
        return ATTN_OK;
    unsigned wanted = !solver              ? attn__sums_broadcast(canonical)
                      : solver->adds_often ? solver->adds_often(canonical)
                                           : 0;
    for (int i = 0; i < GRADIENTS; i++) {
        attn__extent given = attn__operand_extent(canonical, operand_of(i), NULL);
        private_gradients *sums = *data;
        if (!(wanted & canonical->problem.flags & wishes[i]) || (sums && sums->of[i].count) ||
            attn__extent_size(&given) == 0)
            continue;
        if (!sums)
            sums = *data = attn__alloc_zero(context, sizeof *sums);
        if (!sums)
            return ATTN_ERROR_MEMORY;
        make_private(sums, canonical, i, &given);
    }
    return ATTN_OK;
}

static size_t workspace(const void *data, const attn__canonical *canonical)
{
    (void)canonical;
    return ((const private_gradients *)data)->bytes;
}

static bool span(const void *data, attn_array array, attn_span *span)
{
    const private_gradients *sums = data;
    for (int i = 0; i < GRADIENTS; i++)
        if (arrays_of[i] == array && sums->of[i].count)
            span->low = sums->of[i].given.low, span->high = sums->of[i].given.high + 1;
    return true;
}

static void add(const attn__extent *to, const float *sums, float *given)
{
    int64_t index[ATTN_MAX_DIMS + 1] = {0}, offset = 0;
    do
        given[offset] += *sums++;
    while (attn__extent_next(to, to->n, index, &offset));
}

static void run(const attn__step *step, const attn__execution *given, char *workspace)
{
    const private_gradients *sums = step->data;
    char *memory = workspace + step->workspace_at;
    attn__execution mine = *given;
    memset(memory, 0, sums->bytes);
    for (int i = 0; i < GRADIENTS; i++)
        if (sums->of[i].count)
            attn__arrays_set(&mine.at, arrays_of[i], memory + sums->of[i].at);
    attn__step_run(step->child, &mine, workspace);
    for (int i = 0; i < GRADIENTS; i++)
        if (sums->of[i].count)
            add(&sums->of[i].given, (const float *)(const void *)(memory + sums->of[i].at),
                attn__arrays_get(&given->at, arrays_of[i]));
}

const attn__wrapper attn__wrapper_private_gradients = {
    .canonical = canonical, .workspace = workspace, .span = span, .run = run};
