/* SPDX-License-Identifier: MIT */
#include "attend/block/gradient_sums.h"

#include "attend/block/items.h"
#include "attend/scores/score.h"
#include "base/context.h"
#include "base/integers.h"

static attn_array array_of(int which)
{
    static const attn_array arrays[] = {ATTN_ARRAY_DQ,    ATTN_ARRAY_DK, ATTN_ARRAY_DV,
                                        ATTN_ARRAY_DBIAS, ATTN_ARRAY_DW, ATTN_ARRAY_DW2};
    return which < ATTN__SUM_TABLE ? arrays[which] : (attn_array)(ATTN_ARRAY_DTABLE + (which - ATTN__SUM_TABLE));
}

static attn__operand operand_of(int which)
{
    return attn__arrays_table[array_of(which)].operand;
}

static const unsigned bits[] = {ATTN_WANT_DQ, ATTN_WANT_DK, ATTN_WANT_DV,     ATTN_WANT_DBIAS,
                                ATTN_WANT_DW, ATTN_WANT_DW, ATTN_WANT_DTABLES};

static bool is_requested(const attn__canonical *canonical, int which, unsigned gradients)
{
    const attn_problem *p = &canonical->problem;
    if (!(p->flags & gradients & bits[attn__min(which, ATTN__SUM_TABLE)]))
        return false;
    return which >= ATTN__SUM_TABLE ? which - ATTN__SUM_TABLE < p->nrelatives
                                    : which != ATTN__SUM_W2 || attn__score_of(p)->vectors > 1;
}

size_t attn__sums_size(const attn__canonical *canonical, unsigned gradients)
{
    size_t size = 0;
    attn__array_use use;
    for (int which = 0; which < ATTN__SUMS; which++)
        if (is_requested(canonical, which, gradients) && attn__arrays_find(canonical, array_of(which), &use))
            size = attn__size_add(size, attn__extent_size(&use.extent));
    return attn__size_mul(size, sizeof(double));
}

void attn__sums_start(attn__sums *sums, const attn__canonical *canonical, unsigned gradients, void *memory)
{
    double *next = memory;
    attn__array_use use;
    *sums = (attn__sums){{NULL}};
    for (int which = 0; which < ATTN__SUMS; which++) {
        if (!is_requested(canonical, which, gradients) || !attn__arrays_find(canonical, array_of(which), &use))
            continue;
        size_t n = attn__extent_size(&use.extent);
        sums->at[which] = n ? next - use.extent.low : next;
        next += n;
    }
}

static void store_extent(const double *sums, const attn__extent *e, attn_dtype dtype, void *to, bool add)
{
    int64_t index[ATTN_MAX_DIMS + 1] = {0}, offset = 0;
    for (bool more = attn__extent_size(e) > 0; more; more = attn__extent_next(e, e->n, index, &offset))
        attn__store(dtype, to, offset, add ? attn__load(dtype, to, offset) + sums[offset] : sums[offset]);
}

/* Limits `e` to the tokens of packed sequences. Returns the offset of the first token. */
static int64_t packed_start(const attn__canonical *canonical, const attn__execution *arrays, int which, attn__extent *e)
{
    const attn_packed *packed = &canonical->problem.packed;
    if (!attn__is_packed(canonical) || which >= ATTN__SUM_BIAS)
        return 0;
    const attn__axis *axis =
        which == ATTN__SUM_Q ? &canonical->query.axis[packed->query_dim] : &canonical->key.axis[packed->key_dim];
    const int32_t *offsets = which == ATTN__SUM_Q ? arrays->at.q_offsets : arrays->at.k_offsets;
    attn__canonical used = *canonical;
    int64_t sequences = canonical->batch.axis[packed->batch_dim].dim.n;
    used.problem.packed.queries = arrays->at.q_offsets[sequences] - arrays->at.q_offsets[0];
    used.problem.packed.keys = arrays->at.k_offsets[sequences] - arrays->at.k_offsets[0];
    *e = attn__operand_extent(&used, operand_of(which), NULL);
    return offsets[0] * attn__stride(&axis->dim, operand_of(which));
}

void attn__sums_store(const attn__sums *sums, const attn__canonical *canonical, const attn__execution *arrays)
{
    attn__array_use use;
    for (int which = 0; which < ATTN__SUMS; which++) {
        if (!sums->at[which] || !attn__arrays_find(canonical, array_of(which), &use))
            continue;
        int64_t start = packed_start(canonical, arrays, which, &use.extent);
        char *array = attn__arrays_get(&arrays->at, array_of(which));
        store_extent(sums->at[which] + start, &use.extent, use.dtype,
                     array + start * (int64_t)attn_dtype_size(use.dtype), canonical->problem.accumulate);
    }
}

static void zero_extent(const attn__extent *e, size_t size, char *array)
{
    int64_t index[ATTN_MAX_DIMS + 1] = {0}, offset = 0;
    bool runs = e->n > 0 && e->stride[e->n - 1] == 1;
    int outer = runs ? e->n - 1 : e->n;
    size_t run = runs ? (size_t)e->length[outer] : 1;
    for (bool more = attn__extent_size(e) > 0; more; more = attn__extent_next(e, outer, index, &offset))
        memset(array + offset * (int64_t)size, 0, run * size);
}

void attn__gradients_clear(const attn__canonical *canonical, const attn__execution *arrays, int64_t batch,
                           unsigned gradients, const bool *fixed)
{
    attn__place place = attn__place_of(canonical, batch);
    for (int which = ATTN__SUM_Q; which <= ATTN__SUM_BIAS; which++) {
        attn__operand op = operand_of(which);
        size_t size = attn_dtype_size(attn__operand_dtype(&canonical->problem, op));
        if (!is_requested(canonical, which, gradients))
            continue;
        attn__extent extent = attn__operand_extent(canonical, op, fixed);
        zero_extent(&extent, size,
                    (char *)attn__arrays_get(&arrays->at, array_of(which)) +
                        attn__stride(&place.at, op) * (int64_t)size);
    }
}

/* Reports whether different indices of the batch axis write different elements of every requested gradient. */
static bool are_disjoint(const attn__canonical *canonical, int batch_axis, unsigned gradients)
{
    const attn__axis *axis = &canonical->batch.axis[batch_axis];
    bool disjoint = true;
    for (int which = 0; disjoint && which < ATTN__SUMS; which++) {
        if (!is_requested(canonical, which, gradients))
            continue;
        int64_t stride = which >= ATTN__SUM_TABLE ? axis->table[which - ATTN__SUM_TABLE]
                                                  : attn__stride(&axis->dim, operand_of(which));
        /* packed sequences have stride 0, but never share tokens */
        disjoint = stride != 0 || (axis->packed && which < ATTN__SUM_BIAS);
    }
    return disjoint;
}

attn__batch_split attn__batch_split_make(const attn__canonical *canonical, unsigned gradients)
{
    attn__batch_split split = {.items = 1, .rest = 1};
    for (int i = 0; i < canonical->batch.n; i++) {
        split.apart[i] = are_disjoint(canonical, i, gradients);
        *(split.apart[i] ? &split.items : &split.rest) *= canonical->batch.axis[i].dim.n;
    }
    return split;
}

int64_t attn__batch_split_index(const attn__batch_split *split, const attn__canonical *canonical, int64_t item,
                                int64_t rest)
{
    int64_t linear = 0, scale = 1;
    for (int i = canonical->batch.n - 1; i >= 0; i--) {
        int64_t n = canonical->batch.axis[i].dim.n, *from = split->apart[i] ? &item : &rest;
        linear += *from % n * scale;
        *from /= n;
        scale *= n;
    }
    return linear;
}

/* ------------------------------------------------------------------------------------------------- slots */

enum { SLOTS = 16 }; /* maximum number of slots, because each slot needs memory for sums */
enum { SHARED = ATTN_WANT_DW | ATTN_WANT_DTABLES }; /* gradients to which all items add */

/* If there are no items, there is memory for one slot of zeros, which become the gradients. */
attn__slots attn__slots_make(const attn__canonical *canonical, void *memory)
{
    attn__slots slots = {.canonical = canonical,
                         .gradients = SHARED,
                         .split = attn__batch_split_make(canonical, ATTN__WANT_OWN),
                         .memory = memory};
    size_t size = attn__sums_size(canonical, SHARED);
    slots.size = attn__size_add(size, 63) == SIZE_MAX ? SIZE_MAX : (size + 63) / 64 * 64;
    slots.n = size ? attn__min(slots.split.items, SLOTS) : slots.split.items;
    slots.bytes = attn__size_mul(slots.size, (size_t)attn__max(slots.n, 1));
    return slots;
}

void attn__slots_start(const attn__slots *slots, int64_t slot, attn__sums *sums, int64_t *first, int64_t *end)
{
    char *memory = slots->memory + (size_t)slot * slots->size;
    memset(memory, 0, slots->size);
    attn__sums_start(sums, slots->canonical, slots->gradients, memory);
    *first = slot * slots->split.items / slots->n;
    *end = (slot + 1) * slots->split.items / slots->n;
}

void attn__slots_store(const attn__slots *slots, const attn__execution *arrays)
{
    double *total = (double *)(void *)slots->memory;
    attn__sums sums;
    if (slots->size == 0)
        return;
    if (slots->n == 0)
        memset(slots->memory, 0, slots->size);
    for (int64_t slot = 1; slot < slots->n; slot++) {
        const double *part = (const double *)(const void *)(slots->memory + (size_t)slot * slots->size);
        for (size_t i = 0; i < slots->size / sizeof *part; i++)
            total[i] += part[i];
    }
    attn__sums_start(&sums, slots->canonical, slots->gradients, slots->memory);
    attn__sums_store(&sums, slots->canonical, arrays);
}

/* The axis of packed sequences is ignored: its indices are different tokens. */
static bool is_broadcast(const attn__canonical *canonical, attn__operand op)
{
    bool broadcast = false;
    for (attn_role role = ATTN_ROLE_BATCH; role <= ATTN_ROLE_VALUE; role++) {
        const attn__group *group = attn__group_of(canonical, role);
        for (int i = 0; (attn__operand_table[op].roles >> role & 1) && i < group->n; i++) {
            const attn__axis *axis = &group->axis[i];
            broadcast = broadcast || (axis->dim.n > 1 && attn__stride(&axis->dim, op) == 0 && !axis->packed);
        }
    }
    return broadcast;
}

unsigned attn__sums_broadcast(const attn__canonical *canonical)
{
    unsigned found = 0;
    for (int which = ATTN__SUM_Q; which <= ATTN__SUM_BIAS; which++)
        if (is_requested(canonical, which, ATTN__WANT_OWN) && is_broadcast(canonical, operand_of(which)))
            found |= bits[which];
    return found;
}
