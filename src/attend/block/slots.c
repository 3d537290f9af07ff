/* SPDX-License-Identifier: MIT
 * Slots of a backward pass. */
#include "attend/block/slots.h"

#include "attend/block/row.h"
#include "base/context.h"
#include "base/integers.h"

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
    slots->n = size ? attn__least(slots->split.items, SLOTS) : slots->split.items;
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
    return attn__size_mul(slots.size, (size_t)attn__most(slots.n, 1));
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
