/* SPDX-License-Identifier: MIT */
#include "attend/block/row.h"

#include "attend/block/items.h"
#include "attend/block/window_base.h"

/* Adds the offsets of a group's indices to the row's offsets, and to *drop, the row number for dropout. */
static void add_group(attn__row *row, const attn__group *group, const int64_t *index, uint64_t *drop)
{
    for (int i = 0; i < group->n; i++) {
        const attn__axis *axis = &group->axis[i];
        for (attn__operand op = 0; op < ATTN__OPERANDS; op++)
            row->offset[op] += index[i] * attn__stride(&axis->dim, op);
        for (int t = 0; t < row->canonical->problem.nrelatives; t++)
            row->table[t] += index[i] * axis->table[t];
        *drop += (uint64_t)index[i] * (uint64_t)axis->drop;
    }
}

/* Adds the position of the row's sequence to its offsets, because packed sequences have BATCH stride 0. Also sets
 * `absent`, `keys` and `shift`. */
static void pack(attn__row *row, int64_t sequence)
{
    const attn__canonical *canonical = row->canonical;
    const attn_packed *packed = &canonical->problem.packed;
    const int32_t *q = row->arrays->at.q_offsets + sequence, *k = row->arrays->at.k_offsets + sequence;
    row->absent = row->index[packed->query_dim] >= (int64_t)q[1] - q[0];
    row->keys = (int64_t)k[1] - k[0];
    row->shift = packed->align_ends ? row->keys - ((int64_t)q[1] - q[0]) : 0;
    for (attn__operand op = 0; op < ATTN__OPERANDS; op++)
        if (attn__operand_packed(op, ATTN_ROLE_QUERY))
            row->offset[op] += q[0] * attn__stride(&canonical->query.axis[packed->query_dim].dim, op);
        else if (attn__operand_packed(op, ATTN_ROLE_KEY))
            row->offset[op] += k[0] * attn__stride(&canonical->key.axis[packed->key_dim].dim, op);
}

void attn__row_at(attn__row *row, const attn__canonical *canonical, const attn__execution *arrays, int64_t batch,
                  int64_t query)
{
    const attn_problem *p = &canonical->problem;
    int64_t index[ATTN_MAX_DIMS];
    uint64_t drop = 0;
    *row = (attn__row){.canonical = canonical, .arrays = arrays, .len = INT64_MAX};
    attn__split(&canonical->batch, batch, index);
    add_group(row, &canonical->batch, index, &drop);
    attn__split(&canonical->query, query, row->index);
    add_group(row, &canonical->query, row->index, &drop);
    if (attn__is_packed(canonical))
        pack(row, attn__packed_sequence(canonical, batch));
    for (int i = 0; i < p->nwindows; i++)
        row->base[i] = attn__window_base(&p->windows[i], canonical->key.axis[p->windows[i].key_dim].dim.n,
                                         row->index[p->windows[i].query_dim]);
    if (canonical->has_lens)
        row->len = arrays->at.lens[row->offset[ATTN__OP_LENS]];
    if (canonical->has_dropout)
        row->key = attn__dropout_row(canonical, arrays, drop);
}

typedef struct place {
    int64_t tap[ATTN_MAX_DIMS];
    int64_t position[ATTN_MAX_DIMS]; /* position along each axis; without a window it is the key's index */
    int64_t step[ATTN_MAX_DIMS];     /* step of the window; 1 without a window */
} place;

/* Finds the position of the key along each axis. Sets spot->outside if a position is outside of its axis. */
static void find_place(place *at, attn__spot *spot, const attn__row *row, int64_t key)
{
    const attn_problem *p = &row->canonical->problem;
    const attn__group *group = &row->canonical->key;
    spot->kind = ATTN__SPOT_KEY;
    spot->outside = false;
    attn__split(group, key, at->tap);
    for (int i = 0; i < group->n; i++)
        at->position[i] = at->tap[i], at->step[i] = 1;
    if (attn__is_packed(row->canonical) && at->tap[p->packed.key_dim] >= row->keys)
        spot->kind = ATTN__SPOT_OUT;
    for (int i = 0; i < p->nwindows; i++) {
        const attn_window *w = &p->windows[i];
        int64_t position = row->base[i] + at->tap[w->key_dim] * w->dilation;
        at->position[w->key_dim] = position;
        at->step[w->key_dim] = w->step;
        if (position >= 0 && position < w->size)
            continue;
        spot->outside = true;
        if (w->border == ATTN_BORDER_MASK)
            spot->kind = ATTN__SPOT_OUT;
    }
}

static int64_t distance(const attn__row *row, const place *at, int query_dim, int key_dim)
{
    return at->position[key_dim] - row->index[query_dim] * at->step[key_dim];
}

/* Returns a correction for an offset in the mask of blocks. The offset was computed from indices of elements, but the
 * mask has one element per block. */
static int64_t block_shift(const attn__row *row, const place *at)
{
    const attn__canonical *canonical = row->canonical;
    const attn_blocks *b = &canonical->problem.blocks;
    int64_t i = row->index[b->query_dim], j = at->tap[b->key_dim];
    return (i / b->queries - i) * canonical->query.axis[b->query_dim].dim.blocks +
           (j / b->keys - j) * canonical->key.axis[b->key_dim].dim.blocks;
}

/* Reports whether bands, blocks, lengths or the mask hide the key. Lengths and the mask do not apply to positions
 * outside of an axis. */
static bool is_masked(const attn__row *row, const place *at, const attn__spot *spot)
{
    const attn__canonical *canonical = row->canonical;
    const attn_problem *p = &canonical->problem;
    for (int i = 0; i < p->nbands; i++) {
        int64_t d = distance(row, at, p->bands[i].query_dim, p->bands[i].key_dim);
        if (row->shift && p->bands[i].query_dim == p->packed.query_dim && p->bands[i].key_dim == p->packed.key_dim)
            d -= row->shift;
        if (d < p->bands[i].lo || d > p->bands[i].hi)
            return true;
    }
    if (canonical->has_blocks && !row->arrays->at.blocks[spot->offset[ATTN__OP_BLOCKS] + block_shift(row, at)])
        return true;
    if (spot->outside)
        return false;
    if (canonical->has_lens && at->position[p->lens_dim] >= row->len)
        return true;
    return canonical->has_mask && !row->arrays->at.mask[spot->offset[ATTN__OP_MASK]];
}

static void find_offsets(attn__spot *spot, const attn__row *row, const place *at)
{
    const attn_problem *p = &row->canonical->problem;
    const attn__group *group = &row->canonical->key;
    memcpy(spot->offset, row->offset, sizeof spot->offset);
    spot->column = 0;
    for (int i = 0; i < group->n; i++) {
        const attn__axis *axis = &group->axis[i];
#define ATTN_X(NAME, field, roles, positional)                                                                         \
    if ((roles)&ATTN__IN_KEY)                                                                                          \
        spot->offset[ATTN__OP_##NAME] += ((positional) ? at->position[i] : at->tap[i]) * axis->dim.field;
        ATTN__OPERAND_MAP(ATTN_X)
#undef ATTN_X
        spot->column += (uint32_t)((uint64_t)at->tap[i] * (uint64_t)axis->drop);
    }
    for (int i = 0; i < p->nrelatives; i++) {
        const attn_relative *r = &p->relatives[i];
        spot->table[i] = row->table[i] + (distance(row, at, r->query_dim, r->key_dim) + r->offset) * r->row_stride;
    }
}

void attn__spot_at(attn__spot *spot, const attn__row *row, int64_t key)
{
    place at;
    spot->key = key;
    find_place(&at, spot, row, key);
    if (spot->kind == ATTN__SPOT_OUT)
        return;
    find_offsets(spot, row, &at);
    if (is_masked(row, &at, spot))
        spot->kind = row->canonical->problem.mask_fill != 0 ? ATTN__SPOT_FILL : ATTN__SPOT_OUT;
}
