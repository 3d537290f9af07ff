/* SPDX-License-Identifier: MIT
 *
 * rows.h - computes the offsets of rows of queries or keys in an operand, and loads and stores such rows as f32.  A row
 * has a linear index over a group of dims. The last dim varies fastest.  The channels of a row may have any offsets.
 * The offset of a batch index or of a packed sequence is added to all rows.
 */
#ifndef ATTN_ATTEND_ROWS_H
#define ATTN_ATTEND_ROWS_H

#include "attend/block/prefetch.h"
#include "attend/problem/canonical.h"
#include "attend/problem/operand.h"
#include "base/bf16.h"
#include "kernels/online_softmax/online_softmax.h"
#include "kernels/softmax_backward/softmax_backward.h"

#include <string.h>

/* Selects a stride field of attn__axis, as in ATTN__STRIDE(dim.q) or ATTN__STRIDE(drop). */
#define ATTN__STRIDE(field) offsetof(attn__axis, field)

static inline size_t attn__stride_of(attn__operand op)
{
    return offsetof(attn__axis, dim) + attn__operand_table[op].offset;
}

static inline const attn__group *attn__channels_of(const attn__canonical *canonical, attn__operand op)
{
    return attn__operand_table[op].roles & ATTN__IN_VALUE ? &canonical->value : &canonical->contract;
}

static inline const attn__group *attn__rows_of(const attn__canonical *canonical, attn__operand op)
{
    return attn__operand_table[op].roles & ATTN__IN_QUERY ? &canonical->query : &canonical->key;
}

static inline void *attn__operand_array(const attn__execution *arrays, attn__operand op)
{
#define ATTN_X(NAME, field, roles, positional) [ATTN__OP_##NAME] = offsetof(attn_arrays, field),
    static const size_t places[] = {ATTN__OPERAND_MAP(ATTN_X)};
#undef ATTN_X
    void *data;
    memcpy(&data, (const char *)&arrays->at + places[op], sizeof data);
    return data;
}

/* Writes the offsets of indices [first, first + count) of the group to `out`. */
void attn__offsets_fill(const attn__group *group, size_t stride, int64_t first, int64_t count, int64_t *out);
/* Writes `base` plus the offsets of indices [first, first + count). `base` is usually the offset of a batch index. */
void attn__offsets_from(const attn__group *group, size_t stride, int64_t base, int64_t first, int64_t count,
                        int64_t *out);
int64_t attn__offsets_one(const attn__group *group, size_t stride, int64_t index);
static inline void attn__query_offsets(const attn__canonical *canonical, size_t stride, int64_t batch, int64_t first,
                                       int64_t count, int64_t *out)
{
    attn__offsets_from(&canonical->query, stride, attn__offsets_one(&canonical->batch, stride, batch), first, count,
                       out);
}

static inline void attn__operand_offsets(const attn__canonical *canonical, attn__operand op, int64_t batch,
                                         int64_t first, int64_t count, int64_t *out)
{
    size_t stride = attn__stride_of(op);
    attn__offsets_from(attn__rows_of(canonical, op), stride, attn__offsets_one(&canonical->batch, stride, batch), first,
                       count, out);
}

/* Returns the index along one axis of the group for a linear index over the group. */
static inline int64_t attn__offsets_index(const attn__group *group, int axis, int64_t index)
{
    for (int a = group->n - 1; a > axis; a--)
        index /= group->axis[a].dim.n;
    return index % group->axis[axis].dim.n;
}

/* Writes the indices along one axis for the group's linear indices [first, first + count). */
void attn__offsets_indices(const attn__group *group, int axis, int64_t first, int64_t count, int64_t *out);
/* Reports whether every index i has the offset i * step. */
bool attn__offsets_even(const attn__group *group, size_t stride, int64_t step);
static inline bool attn__offsets_adjacent(const attn__group *group, size_t stride)
{
    return attn__offsets_even(group, stride, 1);
}

/* Writes the offsets of a group of channels to *room and advances *room. If channels are adjacent, returns NULL. */
static inline const int64_t *attn__offsets_channels(const attn__group *group, size_t stride, int64_t **room)
{
    int64_t *at = *room;
    if (attn__offsets_adjacent(group, stride))
        return NULL;
    attn__offsets_fill(group, stride, 0, group->size, at);
    *room += group->size;
    return at;
}

/* Sets channel[op] to the channel offsets of each operand `op`. Returns the end of the memory used. */
static inline int64_t *attn__channels_find(const attn__canonical *canonical, const attn__operand *ops, size_t n,
                                           const int64_t *channel[ATTN__OPERANDS], int64_t *room)
{
    for (size_t i = 0; i < n; i++)
        channel[ops[i]] = attn__offsets_channels(attn__channels_of(canonical, ops[i]), attn__stride_of(ops[i]), &room);
    return room;
}

static inline bool attn__channels_adjacent(const attn__canonical *canonical, const attn__operand *ops, size_t n)
{
    bool all = true;
    for (size_t i = 0; i < n; i++)
        all = all && attn__offsets_adjacent(attn__channels_of(canonical, ops[i]), attn__stride_of(ops[i]));
    return all;
}

/* Reports whether different indices have different elements. Does not check the axis of packed sequences. */
static inline bool attn__group_moves(const attn__group *group, attn__operand op)
{
    bool all = true;
    for (int a = 0; a < group->n; a++)
        all = all && (group->axis[a].dim.n <= 1 || group->axis[a].packed || attn__stride(&group->axis[a].dim, op) != 0);
    return all;
}

/* Offsets of one batch index in all operands and tables, and its row number for dropout. */
typedef struct attn__place {
    attn_dim at; /* each stride field holds an offset in its operand, not a stride */
    int64_t table[ATTN_MAX_RELATIVE];
    uint64_t drop;
} attn__place;

static inline void attn__place_advance(attn__place *place, const attn__axis *axis, int64_t by)
{
#define ATTN_X(NAME, field, roles, positional) place->at.field += by * axis->dim.field;
    ATTN__OPERAND_MAP(ATTN_X)
#undef ATTN_X
    place->drop += (uint64_t)by * (uint64_t)axis->drop;
    for (int i = 0; i < ATTN_MAX_RELATIVE; i++)
        place->table[i] += by * axis->table[i];
}

attn__place attn__place_of(const attn__canonical *canonical, int64_t batch);

/* Rows of an operand in f32 or bf16. Row r has n channels. Channel c is at element at[r] + channel[c], or at[r] + c if
 * `channel` is NULL. */
typedef struct attn__rows {
    const void *data;
    attn_dtype dtype;
    const int64_t *at;
    int64_t rows;
    const int64_t *channel; /* offsets of the channels; NULL if they are adjacent */
    int64_t n;
} attn__rows;

enum { ATTN__ROWS_AHEAD = 8 }; /* attn__rows_store prefetches this many rows ahead */

/* Loads channel c of row r into to[r * ld + c], and 0 for n <= c < ld. Returns false if any number is not finite. */
bool attn__rows_load(const attn__rows *rows, const attn__online_softmax_kernel *kernel, float *to, int64_t ld);
/* Stores scale * from in the rows. If `add` is set, adds it to the rows instead. */
void attn__rows_store(const attn__rows *rows, const attn__softmax_backward_kernel *kernel, const float *from,
                      int64_t ld, float scale, bool add);
/* Prefetches row r for writing. Does nothing past the last row. */
void attn__rows_prefetch(const attn__rows *rows, int64_t r);

/* Adds rows [from, to) of `heads` neighbouring batch indices to `list`. The operand's channels must be adjacent.
 * Returns false and adds nothing if rows run along several dims, since the hardware prefetcher handles such rows. */
static inline bool attn__rows_plan_prefetch(attn__prefetch *list, const attn__canonical *canonical,
                                            const attn__execution *arrays, attn__operand op, int64_t batch,
                                            int64_t heads, int64_t from, int64_t to)
{
    const attn__group *group = attn__rows_of(canonical, op);
    size_t stride = attn__stride_of(op);
    int64_t size = (int64_t)attn_dtype_size(attn__operand_dtype(&canonical->problem, op));
    int64_t step = group->size > 1 ? attn__offsets_one(group, stride, 1) : 0;
    int64_t at = attn__offsets_one(&canonical->batch, stride, batch) + from * step;
    if (group->n == 1)
        attn__prefetch_add(list, (const char *)attn__operand_array(arrays, op) + at * size, step * size, NULL,
                           to - from, heads * attn__channels_of(canonical, op)->size * size);
    return group->n == 1;
}

/* ----------------------------------------------------------------------------------- elements as doubles */

static inline double attn__load(attn_dtype dtype, const void *base, int64_t i)
{
    if (dtype == ATTN_F32)
        return (double)((const float *)base)[i];
    if (dtype == ATTN_F64)
        return ((const double *)base)[i];
    return (double)attn__from_bf16(((const uint16_t *)base)[i]);
}

static inline void attn__store(attn_dtype dtype, void *base, int64_t i, double x)
{
    if (dtype == ATTN_F32)
        ((float *)base)[i] = (float)x;
    else if (dtype == ATTN_F64)
        ((double *)base)[i] = x;
    else
        ((uint16_t *)base)[i] = attn__to_bf16((float)x);
}

/* Splits a linear index over a group into one index per axis. The last axis varies fastest. */
static inline void attn__split(const attn__group *group, int64_t linear, int64_t *index)
{
    for (int i = group->n - 1; i > 0; i--) {
        index[i] = linear % group->axis[i].dim.n;
        linear /= group->axis[i].dim.n;
    }
    index[0] = linear;
}

/* Writes all elements of a group to `out` in order. They are read from base[offset] on, with the operand's strides. */
void attn__gather(const attn__group *group, attn__operand op, attn_dtype dtype, const void *base, int64_t offset,
                  double *out);
/* Stores or adds `in` to the elements of a group. The order is fixed, because elements may share an address. */
void attn__scatter(const attn__group *group, attn__operand op, attn_dtype dtype, void *base, int64_t offset,
                   const double *in, bool add);

#endif
