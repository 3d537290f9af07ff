/* SPDX-License-Identifier: MIT */
#include "attend/problem/arrays.h"

#include "attend/scores/score.h"

/* The operand of each stride field in attn_dim. */
enum {
#define ATTN_X(NAME, field, roles, positional) BY_##field = ATTN__OP_##NAME,
    ATTN__OPERAND_MAP(ATTN_X)
#undef ATTN_X
        BY_n = ATTN__OPERANDS
};

#define TABLE(NAME, field, i, written)                                                                                 \
    [ATTN_ARRAY_##NAME + (i)] = {#field "[" #i "]", offsetof(attn_arrays, field) + (i) * sizeof(void *), 0,            \
                                 ATTN__OPERANDS, ATTN__WRITTEN_##written}
#define TABLES(NAME, field, written)                                                                                   \
    TABLE(NAME, field, 0, written), TABLE(NAME, field, 1, written), TABLE(NAME, field, 2, written),                    \
        TABLE(NAME, field, 3, written), TABLE(NAME, field, 4, written), TABLE(NAME, field, 5, written)
_Static_assert(ATTN_MAX_RELATIVE == 6, "as many tables as TABLES lists");

const attn__array_info attn__arrays_table[ATTN_ARRAY_COUNT] = {
#define ATTN_X(NAME, field, strides, written)                                                                          \
    [ATTN_ARRAY_##NAME] = {#field, offsetof(attn_arrays, field), offsetof(attn_dim, strides),                          \
                           (attn__operand)BY_##strides, ATTN__WRITTEN_##written},
    ATTN_ARRAYS(ATTN_X)
#undef ATTN_X
        TABLES(TABLE, table, NEVER),
    TABLES(DTABLE, dtable, BACKWARD)};

static bool is_table(attn_array array)
{
    return array < ATTN_ARRAY_Q;
}

static int table_of(attn_array array)
{
    return (int)(array - ATTN_ARRAY_TABLE) % ATTN_MAX_RELATIVE;
}

static bool is_used(const attn__canonical *canonical, attn_array array)
{
    const attn_problem *p = &canonical->problem;
    bool second = attn__score_of(p)->vectors > 1, backward = canonical->backward;
    if (is_table(array))
        return table_of(array) < p->nrelatives &&
               (array < ATTN_ARRAY_DTABLE || (backward && (p->flags & ATTN_WANT_DTABLES)));
    switch (array) {
    case ATTN_ARRAY_Q_OFFSETS:
    case ATTN_ARRAY_K_OFFSETS:
        return canonical->extras & ATTN__PACKED;
    case ATTN_ARRAY_BIAS_INDEX:
        return p->flags & ATTN_WITH_BIAS_INDEX;
    case ATTN_ARRAY_DLSE:
        return canonical->extras & ATTN__DLSE;
    case ATTN_ARRAY_DSINKS:
        return backward && (p->flags & ATTN_WANT_DSINKS);
    case ATTN_ARRAY_W2:
        return second;
    case ATTN_ARRAY_DW:
        return backward && (p->flags & ATTN_WANT_DW);
    case ATTN_ARRAY_DW2:
        return backward && (p->flags & ATTN_WANT_DW) && second;
    default:
        return attn__operand_used(p, attn__arrays_table[array].operand);
    }
}

/* A score that reads no channels still needs q or k for a relative table. */
static bool reads_channels(const attn_problem *p, attn_array array)
{
    attn_relative_kind kind = array == ATTN_ARRAY_Q ? ATTN_RELATIVE_QUERY : ATTN_RELATIVE_KEY;
    bool reads = !attn__score_of(p)->blind;
    for (int i = 0; i < p->nrelatives; i++)
        reads = reads || p->relatives[i].kind == kind;
    return reads;
}

static bool is_optional(const attn__canonical *canonical, attn_array array)
{
    attn__operand op = array == ATTN_ARRAY_BIAS_INDEX ? ATTN__OP_BIAS : attn__arrays_table[array].operand;
    if (is_table(array))
        return canonical->problem.relatives[table_of(array)].rows == 0;
    if ((array == ATTN_ARRAY_Q || array == ATTN_ARRAY_K) && !reads_channels(&canonical->problem, array))
        return true;
    for (attn_role role = ATTN_ROLE_BATCH; op < ATTN__OPERANDS && role <= ATTN_ROLE_VALUE; role++)
        if ((attn__operand_table[op].roles >> role & 1) && attn__group_of(canonical, role)->size == 0)
            return true;
    return false;
}

static attn_dtype dtype_of(const attn_problem *problem, attn_array array)
{
    attn__operand op = attn__arrays_table[array].operand;
    if (is_table(array))
        return attn__operand_dtype(problem, ATTN__OP_W);
    return op < ATTN__OPERANDS ? attn__operand_dtype(problem, op) : ATTN_I32;
}

static void widen(attn__extent *e, int64_t length, int64_t stride)
{
    if (stride == 0)
        return;
    e->length[e->n] = length;
    e->stride[e->n++] = stride;
    if (stride < 0)
        e->low += (length - 1) * stride;
    else
        e->high += (length - 1) * stride;
}

attn__extent attn__operand_extent(const attn__canonical *canonical, attn__operand op, const bool *fixed)
{
    const attn_packed *packed = &canonical->problem.packed;
    bool one = (canonical->extras & ATTN__PACKED) && fixed && fixed[packed->batch_dim];
    attn__extent e = {0};
    for (attn_role role = ATTN_ROLE_BATCH; role <= ATTN_ROLE_VALUE; role++) {
        const attn__group *group = attn__group_of(canonical, role);
        int sequence = role == ATTN_ROLE_QUERY ? packed->query_dim : role == ATTN_ROLE_KEY ? packed->key_dim : -1;
        for (int i = 0; i < group->n; i++) {
            const attn_dim *dim = &group->axis[i].dim;
            if (role != ATTN_ROLE_BATCH || !fixed || !fixed[i])
                widen(&e, one && i == sequence ? dim->n : attn__operand_length(&canonical->problem, dim, i, op),
                      attn__stride(dim, op));
        }
    }
    return e;
}

static attn__extent table_extent(const attn__canonical *canonical, int t)
{
    const attn_relative *r = &canonical->problem.relatives[t];
    const attn__group *channels = r->kind == ATTN_RELATIVE_VALUE ? &canonical->value : &canonical->contract;
    attn__extent e = {0};
    widen(&e, r->rows, r->row_stride);
    for (int i = 0; i < canonical->batch.n; i++)
        widen(&e, canonical->batch.axis[i].dim.n, canonical->batch.axis[i].table[t]);
    for (int i = 0; i < channels->n; i++)
        widen(&e, i == channels->n - 1 ? r->end - r->begin : channels->axis[i].dim.n, channels->axis[i].table[t]);
    return e;
}

static attn__extent extent_of(const attn__canonical *canonical, attn_array array)
{
    if (is_table(array))
        return table_extent(canonical, table_of(array));
    if (array == ATTN_ARRAY_Q_OFFSETS || array == ATTN_ARRAY_K_OFFSETS) {
        int64_t sequences = canonical->batch.axis[canonical->problem.packed.batch_dim].dim.n;
        return (attn__extent){.n = 1, .length = {sequences + 1}, .stride = {1}, .high = sequences};
    }
    if (array == ATTN_ARRAY_BIAS_INDEX)
        return (attn__extent){.high = -1};
    return attn__operand_extent(canonical, attn__arrays_table[array].operand, NULL);
}

bool attn__arrays_find(const attn__canonical *canonical, attn_array array, attn__array_use *use)
{
    if (!is_used(canonical, array))
        return false;
    use->dtype = dtype_of(&canonical->problem, array);
    use->extent = extent_of(canonical, array);
    use->optional = is_optional(canonical, array);
    return true;
}
