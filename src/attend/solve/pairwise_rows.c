/* SPDX-License-Identifier: MIT
 * Rows of channels, and one pair's score and value. */
#include "attend/solve/pairwise_rows.h"

#include "attend/block/element.h"
#include "attend/block/pair.h"

#include <math.h>
#include <stdio.h>

/* ----------------------------------------------------------------------------------------------- sides */

static attn__strides strides_of(const attn__canonical *canonical, int side, const attn__group **group)
{
    static const attn__operand operands[] = {ATTN__OP_Q,  ATTN__OP_K,  ATTN__OP_V,  ATTN__OP_O,   ATTN__OP_W,
                                             ATTN__OP_DQ, ATTN__OP_DK, ATTN__OP_DV, ATTN__OP_DOUT};
    if (side >= ATTN__SIDE_TABLE) {
        *group = attn__table_channels(canonical, side - ATTN__SIDE_TABLE);
        return attn__table_strides(canonical, side - ATTN__SIDE_TABLE);
    }
    bool value = side == ATTN__SIDE_V || side == ATTN__SIDE_O || side == ATTN__SIDE_DV || side == ATTN__SIDE_DOUT;
    *group = value ? &canonical->value : &canonical->contract;
    return attn__operand_strides(*group, operands[side]);
}

/* A table that serves a range of the innermost axis counts its stride from the range's begin. */
static int64_t channel_offset(const attn__canonical *canonical, int side, const attn__group *group,
                              const attn__strides *strides, int64_t channel)
{
    int64_t index[ATTN_MAX_DIMS], offset = 0;
    attn__split(group, channel, index);
    if (side >= ATTN__SIDE_TABLE) {
        const attn_relative *r = &canonical->problem.relatives[side - ATTN__SIDE_TABLE];
        int64_t *last = &index[group->n - 1];
        if (*last < r->begin || *last >= r->end)
            return ATTN__NOWHERE;
        *last -= r->begin;
    }
    for (int axis = 0; axis < group->n; axis++)
        offset += index[axis] * strides->at[axis];
    return offset;
}

static bool is_wanted(const attn__canonical *canonical, int side)
{
    if (side >= ATTN__SIDE_TABLE)
        return side - ATTN__SIDE_TABLE < canonical->problem.nrelatives;
    return canonical->backward || side < ATTN__SIDE_DQ;
}

/* Writes the offsets of each side into `memory` in turn; returns the rest of it. */
static int64_t *lay_side(attn__side *out, const attn__canonical *canonical, int side, int64_t *memory)
{
    const attn__group *group;
    attn__strides strides = strides_of(canonical, side, &group);
    bool plain = side < ATTN__SIDE_TABLE || attn__table_is_whole(canonical, side - ATTN__SIDE_TABLE);
    bool weight = side == ATTN__SIDE_W || side >= ATTN__SIDE_TABLE;
    *out = (attn__side){.dtype = weight ? ATTN_F32 : canonical->problem.dtype, .n = group->size};
    out->direct = plain && out->dtype == ATTN_F32 && group->n == 1 && (strides.at[0] == 1 || group->size == 1);
    if (out->direct)
        return memory;
    out->offset = memory;
    for (int64_t c = 0; c < group->size; c++)
        memory[c] = channel_offset(canonical, side, group, &strides, c);
    return memory + group->size;
}

attn_status attn__pairwise_plan_make(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe)
{
    size_t channels =
        (size_t)(canonical->contract.size > canonical->value.size ? canonical->contract.size : canonical->value.size);
    size_t offsets = attn__size_mul(attn__size_mul(channels, ATTN__SIDES), sizeof(int64_t));
    attn__pairwise_plan *plan = attn__alloc_zero(context, attn__size_add(sizeof *plan, offsets));
    if (!plan)
        return ATTN_ERROR_MEMORY;
    plan->kernel = attn__pairwise_for(canonical->isa);
    plan->share = attn__pairwise_share(canonical);
    int64_t *memory = (int64_t *)(void *)(plan + 1);
    for (int side = 0; side < ATTN__SIDES; side++)
        if (is_wanted(canonical, side))
            memory = lay_side(&plan->side[side], canonical, side, memory);
    recipe->data = plan;
    snprintf(recipe->text, sizeof recipe->text, "%s", attn__isa_text(plan->kernel->isa));
    return ATTN_OK;
}

const float *attn__side_read(const attn__side *side, const void *base, int64_t offset, float *scratch)
{
    if (side->direct)
        return (const float *)base + offset;
    for (int64_t c = 0; c < side->n; c++)
        scratch[c] =
            side->offset[c] == ATTN__NOWHERE ? 0 : (float)attn__load(side->dtype, base, offset + side->offset[c]);
    return scratch;
}

void attn__side_write(const attn__side *side, void *base, int64_t offset, const float *row)
{
    if (side->direct) {
        memcpy((float *)base + offset, row, (size_t)side->n * sizeof(float));
        return;
    }
    for (int64_t c = 0; c < side->n; c++)
        attn__store(side->dtype, base, offset + side->offset[c], (double)row[c]);
}

void attn__side_add(const attn__pairwise *r, const attn__side *side, void *base, int64_t offset, float a,
                    const float *row)
{
    float *to = (float *)base + offset;
    if (side->direct) {
        r->plan->kernel->axpy(a, row, to, side->n);
        return;
    }
    for (int64_t c = 0; c < side->n; c++)
        if (side->offset[c] != ATTN__NOWHERE)
            to[side->offset[c]] += a * row[c];
}

/* ---------------------------------------------------------------------------------------------- scratch */

/* Rows start at multiples of 64 bytes. */
static size_t row_floats(const attn__canonical *canonical)
{
    size_t n =
        (size_t)(canonical->contract.size > canonical->value.size ? canonical->contract.size : canonical->value.size);
    return (n + 15) / 16 * 16 + 16;
}

enum { ROWS = ATTN__SIDES + 5 };

size_t attn__pairwise_share(const attn__canonical *canonical)
{
    return attn__size_mul(attn__size_mul(row_floats(canonical), ROWS), sizeof(float));
}

void attn__pairwise_start(attn__pairwise *r, const attn__canonical *canonical, const attn__pairwise_plan *plan,
                          const attn_arrays *arrays, void *memory)
{
    size_t floats = row_floats(canonical);
    float *next = memory;
    *r = (attn__pairwise){.canonical = canonical, .plan = plan, .arrays = arrays};
    for (int side = 0; side < ATTN__SIDES; side++, next += floats)
        r->scratch[side] = next;
    r->w2_scratch = next;
    r->tanh = next + floats;
    r->sum = next + 2 * floats;
    r->dk = next + 3 * floats;
    r->dw = next + 4 * floats;
}

/* ------------------------------------------------------------------------------------------------ pairs */

void attn__pairwise_at(attn__pairwise *r, int64_t batch, int64_t query)
{
    const attn_arrays *a = r->arrays;
    const attn__side *w = &r->plan->side[ATTN__SIDE_W];
    attn__row_at(&r->row, r->canonical, a, batch, query);
    r->q = attn__side_read(&r->plan->side[ATTN__SIDE_Q], a->q, r->row.offset[ATTN__OP_Q], r->scratch[ATTN__SIDE_Q]);
    int64_t offset = r->row.offset[ATTN__OP_W];
    if (r->canonical->problem.score == ATTN_SCORE_ADDITIVE || r->canonical->problem.score == ATTN_SCORE_CONCAT)
        r->w = attn__side_read(w, a->w, offset, r->scratch[ATTN__SIDE_W]);
    if (r->canonical->problem.score == ATTN_SCORE_CONCAT) {
        r->w2 = attn__side_read(w, a->w2, offset, r->w2_scratch);
        r->of_query = r->plan->kernel->dot(r->w, r->q, w->n);
    }
}

/* Zeros for a key outside a zero border. */
static const float *read_key(attn__pairwise *r, const attn__spot *spot)
{
    int64_t n = r->canonical->contract.size;
    if (spot->outside)
        return memset(r->scratch[ATTN__SIDE_K], 0, (size_t)n * sizeof(float));
    return attn__side_read(&r->plan->side[ATTN__SIDE_K], r->arrays->k, spot->offset[ATTN__OP_K],
                           r->scratch[ATTN__SIDE_K]);
}

static float table_terms(attn__pairwise *r, const attn__spot *spot)
{
    const attn_problem *p = &r->canonical->problem;
    float sum = 0;
    for (int i = 0; i < p->nrelatives; i++) {
        if (p->relatives[i].kind == ATTN_RELATIVE_VALUE)
            continue;
        r->table[i] = attn__side_read(&r->plan->side[ATTN__SIDE_TABLE + i], r->arrays->table[i], spot->table[i],
                                      r->scratch[ATTN__SIDE_TABLE + i]);
        const float *with = p->relatives[i].kind == ATTN_RELATIVE_QUERY ? r->q : r->k;
        sum += r->plan->kernel->dot(with, r->table[i], r->canonical->contract.size);
    }
    return sum;
}

static float own_score(attn__pairwise *r)
{
    const attn__pairwise_kernel *kernel = r->plan->kernel;
    int64_t n = r->canonical->contract.size;
    switch (r->canonical->problem.score) {
    case ATTN_SCORE_ADDITIVE:
        return kernel->additive(r->q, r->k, r->w, r->tanh, n);
    case ATTN_SCORE_CONCAT:
        r->gate = r->of_query + kernel->dot(r->w2, r->k, n);
        return r->gate < 0 ? 0 : r->gate; /* keeps NaN */
    default:
        return kernel->dot(r->q, r->k, n);
    }
}

float attn__pairwise_score(attn__pairwise *r, const attn__spot *spot)
{
    const attn_problem *p = &r->canonical->problem;
    if (spot->kind == ATTN__SPOT_FILL)
        return (float)p->mask_fill;
    r->k = read_key(r, spot);
    float score = (float)p->scale * (own_score(r) + table_terms(r, spot));
    return r->canonical->has_bias ? score + ((const float *)r->arrays->bias)[spot->offset[ATTN__OP_BIAS]] : score;
}

const float *attn__pairwise_value(attn__pairwise *r, const attn__spot *spot)
{
    const attn_problem *p = &r->canonical->problem;
    int64_t n = r->canonical->value.size;
    float *scratch = r->scratch[ATTN__SIDE_V];
    const float *v = NULL;
    if (!spot->outside)
        v = attn__side_read(&r->plan->side[ATTN__SIDE_V], r->arrays->v, spot->offset[ATTN__OP_V], scratch);
    for (int i = 0; i < p->nrelatives; i++) {
        if (p->relatives[i].kind != ATTN_RELATIVE_VALUE)
            continue;
        if (!v)
            v = memset(scratch, 0, (size_t)n * sizeof(float)); /* NOLINT: scratch is never NULL */
        else if (v != scratch)
            v = memcpy(scratch, v, (size_t)n * sizeof(float)); /* NOLINT: scratch is never NULL */
        const float *row = attn__side_read(&r->plan->side[ATTN__SIDE_TABLE + i], r->arrays->table[i], spot->table[i],
                                           r->scratch[ATTN__SIDE_TABLE + i]);
        r->plan->kernel->axpy(1, row, scratch, n);
    }
    return v;
}
