/* SPDX-License-Identifier: MIT
 * Accumulators of gradients in float64, and the slots that have them. */
#include "attend/block/gradient_sums.h"

#include "attend/block/items.h"
#include "attend/block/row.h"
#include "attend/problem/extent.h"
#include "attend/scores/score.h"
#include "base/context.h"
#include "base/integers.h"

static bool is_wanted(const attn__canonical *canonical, int which)
{
    static const unsigned bits[] = {ATTN_WANT_DQ,    ATTN_WANT_DK, ATTN_WANT_DV,
                                    ATTN_WANT_DBIAS, ATTN_WANT_DW, ATTN_WANT_DW};
    const attn_problem *p = &canonical->problem;
    if (which >= ATTN__SUM_TABLE)
        return (p->flags & ATTN_WANT_DTABLES) && which - ATTN__SUM_TABLE < p->nrelatives;
    return (p->flags & bits[which]) && (which != ATTN__SUM_W2 || attn__score_of(p)->vectors > 1);
}

static const attn__operand operands[] = {ATTN__OP_DQ, ATTN__OP_DK, ATTN__OP_DV, ATTN__OP_DBIAS, ATTN__OP_W, ATTN__OP_W};

static attn__extent extent_of(const attn__canonical *canonical, int which)
{
    if (which >= ATTN__SUM_TABLE)
        return attn__table_extent(canonical, which - ATTN__SUM_TABLE);
    return attn__operand_extent(canonical, operands[which]);
}

size_t attn__sums_size(const attn__canonical *canonical)
{
    size_t size = 0;
    for (int which = 0; which < ATTN__SUMS; which++) {
        if (!is_wanted(canonical, which))
            continue;
        attn__extent e = extent_of(canonical, which);
        size = attn__size_add(size, attn__extent_size(&e));
    }
    return attn__size_mul(size, sizeof(double));
}

void attn__sums_start(attn__sums *sums, const attn__canonical *canonical, void *memory)
{
    memset(memory, 0, attn__sums_size(canonical));
    attn__sums_address(sums, canonical, memory);
}

void attn__sums_address(attn__sums *sums, const attn__canonical *canonical, void *memory)
{
    double *next = memory;
    memset(sums, 0, sizeof *sums);
    for (int which = 0; which < ATTN__SUMS; which++) {
        if (!is_wanted(canonical, which))
            continue;
        attn__extent e = extent_of(canonical, which);
        size_t n = attn__extent_size(&e);
        sums->at[which] = n ? next - e.low : next;
        next += n;
    }
}

static void *array_of(const attn_arrays *a, int which)
{
    void *const arrays[] = {a->dq, a->dk, a->dv, a->dbias, a->dw, a->dw2};
    return which >= ATTN__SUM_TABLE ? a->dtable[which - ATTN__SUM_TABLE] : arrays[which];
}

void attn__sums_store_extent(const double *sums, const attn__extent *e, attn_dtype dtype, void *to, bool add)
{
    int64_t index[ATTN_MAX_DIMS + 1] = {0}, offset = 0;
    if (attn__extent_size(e) == 0)
        return;
    for (;;) {
        attn__store(dtype, to, offset, add ? attn__load(dtype, to, offset) + sums[offset] : sums[offset]);
        int i = e->n - 1;
        for (; i >= 0; i--) {
            offset += e->stride[i];
            if (++index[i] < e->length[i])
                break;
            offset -= e->stride[i] * e->length[i];
            index[i] = 0;
        }
        if (i < 0)
            return;
    }
}

/* Of packed sequences only positions of theirs are written. */
static int64_t packed_start(const attn__canonical *canonical, const attn_arrays *arrays, int which, attn__extent *e)
{
    const attn_packed *packed = &canonical->problem.packed;
    if (!attn__is_packed(canonical) || which >= ATTN__SUM_BIAS)
        return 0;
    const attn__axis *axis =
        which == ATTN__SUM_Q ? &canonical->query.axis[packed->query_dim] : &canonical->key.axis[packed->key_dim];
    const int32_t *offsets = which == ATTN__SUM_Q ? arrays->q_offsets : arrays->k_offsets;
    attn__canonical used = *canonical;
    int64_t sequences = canonical->batch.axis[packed->batch_dim].dim.n;
    used.problem.packed.queries = arrays->q_offsets[sequences] - arrays->q_offsets[0];
    used.problem.packed.keys = arrays->k_offsets[sequences] - arrays->k_offsets[0];
    *e = extent_of(&used, which);
    return offsets[0] * attn__stride(&axis->dim, operands[which]);
}

void attn__sums_store(const attn__sums *sums, const attn__canonical *canonical, const attn_arrays *arrays)
{
    const attn_problem *p = &canonical->problem;
    attn_dtype side = p->dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    for (int which = 0; which < ATTN__SUMS; which++) {
        if (!sums->at[which])
            continue;
        attn__extent e = extent_of(canonical, which);
        attn_dtype dtype = which < ATTN__SUM_BIAS ? p->dtype : side;
        int64_t start = packed_start(canonical, arrays, which, &e);
        attn__sums_store_extent(sums->at[which] + start, &e, dtype,
                                (char *)array_of(arrays, which) + start * (int64_t)attn_dtype_size(dtype),
                                p->accumulate);
    }
}

/* Whether different indices of the batch axis write different elements of every requested gradient. */
static bool are_disjoint(const attn__canonical *canonical, int batch_axis)
{
    const attn__axis *axis = &canonical->batch.axis[batch_axis];
    bool private_gradients = true;
    for (int which = 0; which < ATTN__SUMS; which++) {
        if (!is_wanted(canonical, which))
            continue;
        int64_t stride =
            which >= ATTN__SUM_TABLE ? axis->table[which - ATTN__SUM_TABLE] : attn__stride(&axis->dim, operands[which]);
        /* Sequences have tokens of their own. */
        bool apart = stride != 0 || (axis->packed && which < ATTN__SUM_BIAS);
        private_gradients = private_gradients && apart;
    }
    return private_gradients;
}

attn__batch_split attn__batch_split_make(const attn__canonical *canonical)
{
    attn__batch_split split = {.items = 1, .rest = 1};
    for (int i = 0; i < canonical->batch.n; i++) {
        split.apart[i] = are_disjoint(canonical, i);
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

enum { SLOTS = 16 }; /* at most, where there are shared sums: each takes memory */
static const unsigned SHARED = ATTN_WANT_DW | ATTN_WANT_DTABLES;

static const struct {
    unsigned want;
    attn__operand op;
} own[] = {{ATTN_WANT_DQ, ATTN__OP_DQ},
           {ATTN_WANT_DK, ATTN__OP_DK},
           {ATTN_WANT_DV, ATTN__OP_DV},
           {ATTN_WANT_DBIAS, ATTN__OP_DBIAS}};
enum { OWN = sizeof own / sizeof *own };

static attn__canonical keep_wanted(const attn__canonical *canonical, bool shared)
{
    attn__canonical copy = *canonical;
    copy.problem.flags &= ~(shared ? (unsigned)ATTN__WANT_OWN : SHARED);
    return copy;
}

/* Fills all but `memory`. */
static void divide(attn__slots *slots, const attn__canonical *canonical)
{
    attn__canonical of_item = keep_wanted(canonical, false);
    *slots = (attn__slots){
        .canonical = canonical, .shared = keep_wanted(canonical, true), .split = attn__batch_split_make(&of_item)};
    size_t size = attn__sums_size(&slots->shared);
    slots->size = attn__size_add(size, 63) == SIZE_MAX ? SIZE_MAX : (size + 63) / 64 * 64;
    slots->n = size ? attn__min(slots->split.items, SLOTS) : slots->split.items;
    for (int i = 0; i < of_item.batch.n; i++)
        if (slots->split.apart[i])
            of_item.batch.axis[i].dim.n = 1;
    for (int i = 0; i < OWN; i++)
        slots->item[i] = attn__operand_extent(&of_item, own[i].op);
}

/* An empty batch still stores its zeros. */
size_t attn__slots_size(const attn__canonical *canonical)
{
    attn__slots slots;
    divide(&slots, canonical);
    return attn__size_mul(slots.size, (size_t)attn__max(slots.n, 1));
}

void attn__slots_make(attn__slots *slots, const attn__canonical *canonical, void *memory)
{
    divide(slots, canonical);
    slots->memory = memory;
}

void attn__slots_start(const attn__slots *slots, int64_t slot, attn__sums *sums, int64_t *first, int64_t *end)
{
    attn__sums_start(sums, &slots->shared, slots->memory + (size_t)slot * slots->size);
    *first = slot * slots->split.items / slots->n;
    *end = (slot + 1) * slots->split.items / slots->n;
}

void attn__slots_clear(const attn__slots *slots, const attn_arrays *arrays, unsigned wanted, int64_t item)
{
    const attn__canonical *canonical = slots->canonical;
    void *const gradients[] = {arrays->dq, arrays->dk, arrays->dv, arrays->dbias};
    attn__row row;
    attn__row_at(&row, canonical, arrays, attn__batch_split_index(&slots->split, canonical, item, 0), 0);
    for (int i = 0; i < OWN; i++) {
        size_t size = attn_dtype_size(attn__operand_dtype(&canonical->problem, own[i].op));
        if (canonical->problem.flags & wanted & own[i].want)
            attn__extent_zero(&slots->item[i], size, (char *)gradients[i] + row.offset[own[i].op] * (int64_t)size);
    }
}

void attn__slots_store(const attn__slots *slots, const attn_arrays *arrays)
{
    double *total = (double *)(void *)slots->memory;
    attn__sums sums;
    if (slots->size == 0)
        return;
    for (int64_t slot = 1; slot < slots->n; slot++) {
        const double *part = (const double *)(const void *)(slots->memory + (size_t)slot * slots->size);
        for (size_t i = 0; i < slots->size / sizeof *part; i++)
            total[i] += part[i];
    }
    (slots->n ? attn__sums_address : attn__sums_start)(&sums, &slots->shared, slots->memory);
    attn__sums_store(&sums, &slots->shared, arrays);
}

static bool broadcast(const attn__group *group, bool q, bool k, bool v)
{
    for (int a = 0; a < group->n; a++) {
        const attn_dim *dim = &group->axis[a].dim;
        if (dim->n > 1 && !group->axis[a].packed && ((q && dim->dq == 0) || (k && dim->dk == 0) || (v && dim->dv == 0)))
            return true;
    }
    return false;
}

bool attn__sums_meet(const attn__canonical *canonical)
{
    unsigned with = canonical->problem.flags;
    bool q = with & ATTN_WANT_DQ, k = with & ATTN_WANT_DK, v = with & ATTN_WANT_DV;
    return broadcast(&canonical->batch, q, k, v) || broadcast(&canonical->query, q, false, false) ||
           broadcast(&canonical->key, false, k, v) || broadcast(&canonical->contract, q, k, false) ||
           broadcast(&canonical->value, false, false, v);
}
