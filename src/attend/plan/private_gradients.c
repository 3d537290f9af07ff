/* SPDX-License-Identifier: MIT
 * Private sums of broadcast gradients, added to the caller's arrays at the end. */
#include "attend/plan/private_gradients.h"

#include "base/context.h"

#include <string.h>

static const attn__operand operands[ATTN__PRIVATE_GRADIENTS] = {ATTN__OP_DQ, ATTN__OP_DK, ATTN__OP_DV, ATTN__OP_DBIAS};
static const unsigned wishes[ATTN__PRIVATE_GRADIENTS] = {ATTN_WANT_DQ, ATTN_WANT_DK, ATTN_WANT_DV, ATTN_WANT_DBIAS};

static float **place_of(attn_arrays *arrays, int which)
{
    void **const places[ATTN__PRIVATE_GRADIENTS] = {&arrays->dq, &arrays->dk, &arrays->dv, &arrays->dbias};
    return (float **)(void *)places[which];
}

static bool is_broadcast(const attn__canonical *canonical, attn__operand op)
{
    for (attn_role role = ATTN_ROLE_BATCH; role <= ATTN_ROLE_VALUE; role++) {
        const attn__group *group = attn__group_of(canonical, role);
        for (int i = 0; attn__operand_table[op].roles >> role & 1 && i < group->n; i++) {
            const attn__axis *axis = &group->axis[i];
            if (axis->dim.n > 1 && attn__stride(&axis->dim, op) == 0 && !axis->packed)
                return true;
        }
    }
    return false;
}

/* The axes as the extent lists them, the last one innermost. */
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
            count *= attn__extent_length(canonical, group, i, op);
        }
    }
    return count;
}

static void make_private(attn__private_gradients *private_gradients, attn__canonical *canonical, int i)
{
    attn__extent given = attn__operand_extent(canonical, operands[i]);
    if (attn__extent_size(&given) == 0)
        return;
    private_gradients->of[i].given = given;
    private_gradients->of[i].count = make_dense(canonical, operands[i]);
    private_gradients->of[i].at = private_gradients->bytes;
    size_t bytes = attn__size_mul((size_t)private_gradients->of[i].count, sizeof(float));
    private_gradients->bytes = attn__size_add(private_gradients->bytes, attn__size_add(bytes, 63));
    private_gradients->bytes -= private_gradients->bytes == SIZE_MAX ? 0 : private_gradients->bytes % 64;
}

void attn__private_gradients_more(attn__private_gradients *private_gradients, attn__canonical *canonical,
                                  unsigned wanted)
{
    const attn_problem *p = &canonical->problem;
    /* Windows: a stride is one of positions, and sums that overlap; the solvers refuse what they do not add once. */
    if (!canonical->backward || !p->accumulate || p->dtype != ATTN_F32 || p->nwindows)
        return;
    for (int i = 0; i < ATTN__PRIVATE_GRADIENTS; i++)
        if ((p->flags & wanted & wishes[i]) && !private_gradients->of[i].count)
            make_private(private_gradients, canonical, i);
}

void attn__private_gradients_make(attn__private_gradients *private_gradients, attn__canonical *canonical)
{
    unsigned broadcast = 0;
    *private_gradients = (attn__private_gradients){0};
    for (int i = 0; i < ATTN__PRIVATE_GRADIENTS; i++)
        broadcast |= is_broadcast(canonical, operands[i]) ? wishes[i] : 0u;
    attn__private_gradients_more(private_gradients, canonical, broadcast);
}

const attn__extent *attn__private_gradients_extent(const attn__private_gradients *private_gradients, attn__operand op)
{
    for (int i = 0; i < ATTN__PRIVATE_GRADIENTS; i++)
        if (operands[i] == op && private_gradients->of[i].count)
            return &private_gradients->of[i].given;
    return NULL;
}

void attn__private_gradients_begin(const attn__private_gradients *private_gradients, attn_arrays *arrays, char *sums)
{
    if (private_gradients->bytes)
        memset(sums, 0, private_gradients->bytes);
    for (int i = 0; i < ATTN__PRIVATE_GRADIENTS; i++)
        if (private_gradients->of[i].count)
            *place_of(arrays, i) = (float *)(void *)(sums + private_gradients->of[i].at);
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

void attn__private_gradients_end(const attn__private_gradients *private_gradients, const attn_arrays *given,
                                 const char *sums)
{
    attn_arrays arrays = *given;
    for (int i = 0; i < ATTN__PRIVATE_GRADIENTS; i++)
        if (private_gradients->of[i].count)
            add(&private_gradients->of[i].given, (const float *)(const void *)(sums + private_gradients->of[i].at),
                *place_of(&arrays, i));
}
