/* SPDX-License-Identifier: MIT
 * Private sums of broadcast gradients, added to the caller's arrays at the end. */
#include "attend/task/apart.h"

#include "base/context.h"

#include <string.h>

static const attn__operand operands[ATTN__APART] = {ATTN__OP_DQ, ATTN__OP_DK, ATTN__OP_DV, ATTN__OP_DBIAS};
static const unsigned wishes[ATTN__APART] = {ATTN_WANT_DQ, ATTN_WANT_DK, ATTN_WANT_DV, ATTN_WANT_DBIAS};

static float **place_of(attn_arrays *arrays, int which)
{
    void **const places[ATTN__APART] = {&arrays->dq, &arrays->dk, &arrays->dv, &arrays->dbias};
    return (float **)(void *)places[which];
}

static attn__group *group_of(attn__task *task, int role)
{
    attn__group *const groups[] = {&task->batch, &task->query, &task->key, &task->contract, &task->value};
    return groups[role];
}

static bool is_broadcast(attn__task *task, attn__operand op)
{
    for (int role = ATTN_BATCH; role <= ATTN_VALUE; role++)
        for (int i = 0; attn__operand_table[op].roles >> role & 1 && i < group_of(task, role)->n; i++) {
            const attn_dim *dim = &group_of(task, role)->axis[i].dim;
            if (dim->n > 1 && attn__stride(dim, op) == 0)
                return true;
        }
    return false;
}

/* The axes as the extent lists them, the last one innermost. */
static int64_t make_dense(attn__task *task, attn__operand op)
{
    int64_t count = 1;
    for (int role = ATTN_VALUE; role >= ATTN_BATCH; role--)
        for (int i = group_of(task, role)->n - 1; i >= 0; i--) {
            attn_dim *dim = &group_of(task, role)->axis[i].dim;
            if (attn__stride(dim, op) == 0)
                continue;
            *attn__stride_at(dim, op) = count;
            count *= dim->n;
        }
    return count;
}

static void put_apart(attn__apart *apart, attn__task *task, int i)
{
    attn__extent given = attn__operand_extent(task, operands[i]);
    if (attn__extent_size(&given) == 0)
        return;
    apart->of[i].given = given;
    apart->of[i].count = make_dense(task, operands[i]);
    apart->of[i].at = apart->bytes;
    size_t bytes = attn__size_mul((size_t)apart->of[i].count, sizeof(float));
    apart->bytes = attn__size_add(apart->bytes, attn__size_add(bytes, 63));
    apart->bytes -= apart->bytes == SIZE_MAX ? 0 : apart->bytes % 64;
}

void attn__apart_more(attn__apart *apart, attn__task *task, unsigned wanted)
{
    const attn_problem *p = &task->problem;
    /* Windows: a stride is one of positions, and sums that overlap; the solvers refuse what they do not add once. */
    if (!task->backward || !p->accumulate || p->dtype != ATTN_F32 || p->nwindows)
        return;
    for (int i = 0; i < ATTN__APART; i++)
        if ((p->with & wanted & wishes[i]) && !apart->of[i].count)
            put_apart(apart, task, i);
}

void attn__apart_make(attn__apart *apart, attn__task *task)
{
    unsigned broadcast = 0;
    *apart = (attn__apart){0};
    for (int i = 0; i < ATTN__APART; i++)
        broadcast |= is_broadcast(task, operands[i]) ? wishes[i] : 0u;
    attn__apart_more(apart, task, broadcast);
}

const attn__extent *attn__apart_extent(const attn__apart *apart, attn__operand op)
{
    for (int i = 0; i < ATTN__APART; i++)
        if (operands[i] == op && apart->of[i].count)
            return &apart->of[i].given;
    return NULL;
}

void attn__apart_begin(const attn__apart *apart, attn_arrays *arrays, char *sums)
{
    if (apart->bytes)
        memset(sums, 0, apart->bytes);
    for (int i = 0; i < ATTN__APART; i++)
        if (apart->of[i].count)
            *place_of(arrays, i) = (float *)(void *)(sums + apart->of[i].at);
}

static void add(const attn__extent *to, const float *sums, float *given)
{
    int64_t index[ATTN_MAX_DIMS + 1] = {0}, offset = 0;
    for (int64_t at = 0;; at++) {
        given[offset] += sums[at];
        int i = to->n - 1;
        for (; i >= 0; i--) {
            offset += to->stride[i];
            if (++index[i] < to->length[i])
                break;
            offset -= to->stride[i] * to->length[i];
            index[i] = 0;
        }
        if (i < 0)
            return;
    }
}

void attn__apart_end(const attn__apart *apart, const attn_arrays *given, const char *sums)
{
    attn_arrays arrays = *given;
    for (int i = 0; i < ATTN__APART; i++)
        if (apart->of[i].count)
            add(&apart->of[i].given, (const float *)(const void *)(sums + apart->of[i].at), *place_of(&arrays, i));
}
