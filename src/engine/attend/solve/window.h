/* SPDX-License-Identifier: MIT
 *
 * window.h - the plan and the state of the window solver. Each KEY axis is a window that slides along one QUERY axis.
 *
 * Virtual taps.  Tap t of query i along one axis is at position i * step + offset + t * dilation.  If a window is
 * shifted inwards by m taps, its virtual taps count from m. They may therefore be negative or exceed the number of
 * taps. Each query attends a range [from, to) of virtual taps. The relative position of a pair depends only on t.
 * Masking borders and bands make the range smaller.
 *
 * Cells.  A position is (i + cell) * step + phase.  A tap has the same cell and phase for all i. For adjacent queries
 * it therefore reads adjacent cells of one phase's strip.
 *
 * Heads.  A head of 8 channels fills half a cache line of a pixel and half of a transposed square.  Heads that are
 * adjacent in memory and share tables and masks are interleaved: a cell has `per_cell` lanes, one for each head. A tap
 * then moves by `per_cell` lanes per cell. Loads rarely cross cache lines, and one vector serves several taps.  Other
 * adjacent heads share a work item: the first head reads the strips and blocks of all heads, each head computes its
 * part, and the last head writes all outputs.  Tiles, strips and blocks count lanes.
 *
 * Passes.  In the pass by query, queries are the lanes, and strips hold keys and values.  In the pass by key, which
 * computes their gradients, keys are the lanes, and strips hold queries and output gradients.  Both passes run the same
 * blocks.  Each element has one writer, so results do not depend on the threads.  If queries and keys are the positions
 * of one image, a single pass computes all gradients (window_once.c).
 */
#ifndef ATTN_ATTEND_WINDOW_H
#define ATTN_ATTEND_WINDOW_H

#include "attend/block/gradient_sums.h"
#include "attend/block/rows.h"
#include "attend/block/window_base.h"
#include "attend/plan/solver.h"
#include "base/integers.h"
#include "kernels/online_softmax/online_softmax.h"
#include "kernels/window/window.h"
#include "kernels/gemm_tile/gemm_tile.h"

#define ATTN__WINDOW_KINDS 3 /* attn_relative_kind has this many values */
enum { ATTN__WINDOW_AXES = ATTN_MAX_WINDOWS, ATTN__WINDOW_SLOTS = 16, ATTN__WINDOW_HEADS = 8, ATTN__WINDOW_PASSES = 3 };

typedef struct attn__window_axis {
    attn_window window;
    int query, key;      /* indices of the axis in the groups of queries and keys */
    int64_t n, taps;     /* number of queries; number of taps of the window */
    int64_t first, last; /* [first, last): virtual taps that some query attends */
    int64_t low, high;   /* [low, high): virtual taps that the bands allow */
} attn__window_axis;

typedef struct attn__window_range {
    int64_t from, to, moved; /* the query's virtual taps; `moved` is the virtual tap of the window's tap 0 */
} attn__window_range;

/* Returns the cell that a tap reads, relative to the query's cell. */
static inline int64_t attn__window_cell(const attn__window_axis *axis, int64_t tap)
{
    return attn__floor_div(axis->window.offset + tap * axis->window.dilation, axis->window.step);
}

static inline int64_t attn__window_phase(const attn__window_axis *axis, int64_t tap)
{
    return axis->window.offset + tap * axis->window.dilation - attn__window_cell(axis, tap) * axis->window.step;
}

/* Returns the virtual taps that a query attends. The range is empty if from >= to. */
static inline attn__window_range attn__window_range_at(const attn__window_axis *axis, int64_t query)
{
    const attn_window *w = &axis->window;
    int64_t start = query * w->step + w->offset;
    int64_t moved = (attn__window_base(w, axis->taps, query) - start) / w->dilation;
    attn__window_range r = {attn__max(moved, axis->low), attn__min(moved + axis->taps, axis->high), moved};
    if (w->border == ATTN_BORDER_MASK) {
        r.from = attn__max(r.from, attn__ceil_div(-start, w->dilation));
        r.to = attn__min(r.to, attn__floor_div(w->size - 1 - start, w->dilation) + 1);
    }
    return r;
}

/* The lines of keys (or queries) along one outer axis with which one line of the lanes is paired. */
typedef struct attn__window_list {
    int64_t n;
    int64_t *tap, *at; /* virtual tap; query or position, or -1 in a zero border */
} attn__window_list;

/* The division of one pass into work items, tiles and blocks. */
typedef struct attn__window_pass {
    bool by_key, once;
    int64_t lines, band, bands;
    int64_t cells, tile, tiles; /* lanes of a line; lanes of a tile; number of tiles */
    /* With `once`, `left` lanes precede the `own` lanes whose gradients the tile writes. Otherwise, `left` is 0 and
     * `own` is all lanes. */
    int64_t left, own;
    int64_t sums;          /* with `once`: lines of keys and values whose gradients are incomplete */
    int64_t recent;        /* with `once`: number of lanes whose weights are kept */
    int64_t phases;        /* phases of the lanes: the step in the pass by key, otherwise 1 */
    int64_t strip_phases;  /* phases of the strips: the step in the pass by query, otherwise 1 */
    int64_t ld, margin_ld; /* row stride of a strip; row stride of the margins */
    int64_t modulus[ATTN__WINDOW_AXES], divisor[ATTN__WINDOW_AXES], slots; /* slot's digits: at / divisor % modulus */
    int64_t pairs, entries; /* largest numbers of pairs and of entries of a block */
    int64_t items;          /* number of items per batch index */
} attn__window_pass;

typedef struct attn__window {
    const attn__window_kernel *taps;
    const attn__online_softmax_kernel *lanes;
    const attn__gemm_tile_kernel *tile;
    int naxes, nfree;
    attn__window_axis axis[ATTN__WINDOW_AXES]; /* axes with windows; the last one is the axis of the lanes */
    int free_axis[ATTN_MAX_DIMS];              /* QUERY axes without a window */
    int64_t free;                              /* number of indices over free_axis */
    int64_t channels, values;
    int heads;             /* heads of an item; divides the length of the last batch axis */
    int64_t per_cell;      /* heads interleaved in the lanes; `heads` or `per_cell` is 1 */
    bool masked, by_pairs; /* there are masks or lengths; masks or lengths differ per query */
    int lens_axis;         /* index in `axis` of the axis that the lengths limit */
    float kept;            /* factor of kept weights: 1 / (1 - dropout) */
    bool capped;           /* capped scores are stored for the backward pass */
    bool has_table[ATTN__WINDOW_KINDS][ATTN__WINDOW_AXES]; /* [attn_relative_kind][axis] */
    const int64_t *channel[ATTN__OPERANDS];                /* offsets of channels; NULL: adjacent */
    int64_t unit;                                          /* lanes between two taps along the lanes' axis */
    bool once;                                             /* the backward pass is a single pass */
    attn__window_pass pass[ATTN__WINDOW_PASSES];           /* passes by query, by key, and for all gradients */
    const int64_t *table_channel[ATTN_MAX_RELATIVE];       /* offsets of table channels; INT64_MIN: not in the table */
    int64_t table_floats, table_at[ATTN__WINDOW_KINDS][ATTN__WINDOW_AXES];
    size_t share, slot_share; /* bytes of a thread; bytes of the shared sums of a slot */
    int64_t memory[];
} attn__window;

/* The taps that a block of lanes attends. A block is a part of a tile. */
typedef struct attn__window_block {
    int64_t first, n; /* virtual taps first + k * stride for 0 <= k < n */
    bool ragged;      /* some lanes do not attend all of these taps */
} attn__window_block;

/* A pair of lines: the line of the lanes, and a line of the strips. The fields describe the line of the strips. */
typedef struct attn__window_pair {
    int64_t slot;
    int64_t tap[ATTN__WINDOW_AXES];  /* virtual taps along the outer axes */
    int64_t bias, dbias, mask, lens; /* offsets in these arrays, without the part along the lanes' axis */
    int64_t position;                /* position along lens_axis of the line of keys */
    bool outside;                    /* the line of keys is outside of the axis, in a zero border */
    int64_t line, number;            /* with `once`: line of keys; number of this pair */
    uint32_t column;                 /* part of the dropout column number along the outer axes */
} attn__window_pair;

/* Number of lines of keys per line of queries that run together, so that queries are loaded into L1 once. */
enum { ATTN__WINDOW_TOGETHER = 2 };

/* Weights p and gradients ds of scores for a line of queries and a line of keys, [tap][pass->recent]. Only recent
 * queries are kept: lane `start` of the tile and later. */
typedef struct attn__window_recent {
    float *p, *ds;
    int64_t start;
} attn__window_recent;

/* Additional memory of the pass for all gradients.  Rows are as long as a strip, and lane x is query x of the tile.
 * Partial gradients consist of blocks of [channels][width]. */
typedef struct attn__window_once {
    int64_t *query_at;             /* [taps of the lanes' axis]: offset from a key to its query in a strip */
    attn__window_block *keys;      /* taps with which queries attend each block of keys */
    bool *fill;                    /* per block of queries: it must be filled with marks first */
    float *q, *dout, *lse, *delta; /* strips of the current line of queries */
    float *dq, *dk, *dv;           /* dq of the current line; dk and dv of `sums` lines of keys */
    attn__window_recent recent[ATTN__WINDOW_TOGETHER];
    float *marks; /* [width]: marks, to fill a row of a block */
    int64_t far;  /* number of lanes between a query and its last key */
} attn__window_once;

/* The entries of a block. An entry is a tap along the lanes' axis in one line of the strips. */
typedef struct attn__window_entries {
    int32_t *number;  /* number of the entry's virtual tap */
    int64_t *a, *b;   /* offsets of the entry in strip[0] and strip[1] */
    int64_t *range;   /* offset in `ranges` of the entry's first lane */
    int64_t *state;   /* pass by key: offset in `rows` of lse and delta */
    int64_t *flag;    /* offset of the entry in `flags` */
    uint32_t *column; /* dropout column numbers of the taps of one pair */
} attn__window_entries;

/* The query of each lane and its attn__window_range. The lanes are of the tile or, in the pass by key, of the
 * strips. */
typedef struct attn__window_ranges {
    int32_t *query, *from, *to, *moved;
} attn__window_ranges;

/* Arrays of [channels][width] for a block of lanes. */
typedef struct attn__window_lanes {
    float *a, *b, *o, *out_a, *out_b, *old;
    float *flags; /* pass by key: 0 for masked keys, [width] */
    float *terms; /* terms of tables, [tap and pair][width] */
} attn__window_lanes;

/* Numbers of the softmax for each lane of a block. */
typedef struct attn__window_softmax {
    float *m, *l, *factor, *ones, *lse, *delta;
} attn__window_softmax;

/* The memory of one thread for one pass. */
typedef struct attn__window_scratch {
    attn__window_list list[ATTN__WINDOW_AXES];
    attn__window_pair *pair;
    attn__window_block *block;
    attn__window_ranges ranges;
    attn__window_entries entries;
    attn__window_lanes lanes;
    attn__window_softmax softmax;
    float *flags;           /* 0 for masked keys; pass by query: one row per slot */
    uint32_t *drop_key;     /* dropout hashes: low 32 bits, then high 32 bits; placed like lse and delta */
    int64_t *shift, *phase; /* per tap of the block: lane offset in the strip; phase of the strip */
    int64_t *tap_at;        /* offsets of the block's taps in an array */
    int64_t *tag, *offset;
    float *a, *b;                          /* strips: k and v; in the pass by key q and dout */
    float *rows;                           /* pass by key: rows of lse and delta for each slot */
    float *terms[2], *pair_rows[2];        /* terms of tables in strips a and b: per tap of the lanes; per pair */
    float *pair_table[ATTN__WINDOW_KINDS]; /* [pair][channel]: sum of the rows of the outer axes' tables */
    float *s, *dp;
    float *capped;               /* backward: scores after the softcap, before bias and masks */
    float *margin, *pair_margin; /* sums of weights or of ds: [tap] over pairs; [pair] over taps */
    float *line;                 /* memory for strips while they are read */
    float *table;                /* tables of the batch index, see plan->table_at */
    double *table_sums;          /* sums of the tables' gradients, shaped like `table` */
    attn__window_once once;
} attn__window_scratch;

/* The state of a thread for one head of an item. The states of adjacent heads are adjacent in an array. */
typedef struct attn__window_work {
    int head;
    const attn__canonical *canonical;
    const attn__window *plan;
    const attn__window_pass *pass;
    const attn__execution *arrays;
    attn__sums sums; /* sums of the slot for gradients that items share */
    attn__window_scratch s;
    attn__place place, line;             /* offsets of the batch index; offsets of the current line */
    int64_t table_at[ATTN_MAX_RELATIVE]; /* table offsets of the batch index in `table` */
    bool tables_read, tables_finite;
    bool described; /* ranges and blocks of tile described_item are in memory */
    int64_t described_item;
    int64_t cell0, phase;         /* first lane of the tile, relative to the line; phase of the lanes */
    int64_t live;                 /* number of lanes of the tile that exist */
    int64_t index[ATTN_MAX_DIMS]; /* indices along the QUERY axes, or positions along the outer axes */
    int64_t pairs;
    int64_t cell, lanes; /* first lane of the block in the tile; number of lanes that exist */
    attn__window_block now;
    const float *strip[2], *flags; /* base addresses to which the offsets of entries are added */
    int64_t entry;                 /* first entry of the block */
    int64_t stride;                /* distance of two taps of the block in virtual taps */
} attn__window_work;

/* The arrays of a block in a backward pass. a and b have queries and output gradients, or keys and values in the pass
 * by key. Their row stride is tile_ld. p and ds have weights and gradients of scores. Their row stride is ld. */
typedef struct attn__window_weights {
    float *a, *b, *p, *ds;
    const float *lse, *delta;
    int64_t tile_ld, ld;
    bool dbias; /* the gradients are also added to dbias */
} attn__window_weights;

static inline const attn__window_axis *attn__window_lane_axis(const attn__window *plan)
{
    return &plan->axis[plan->naxes - 1];
}

static inline int64_t attn__window_channels(const attn__window *plan, attn__operand op)
{
    return attn__operand_table[op].roles & ATTN__IN_VALUE ? plan->values : plan->channels;
}

/* Returns the operand's stride between interleaved heads, or 0 if heads are not interleaved. */
static inline int64_t attn__window_head_stride(const attn__window_work *work, attn__operand op)
{
    const attn__group *batch = &work->canonical->batch;
    return work->plan->per_cell > 1 ? attn__stride(&batch->axis[batch->n - 1].dim, op) : 0;
}

/* Returns the cell of a lane of the block. It is the lane's query or, in the pass by key, the cell of its position. */
static inline int64_t attn__window_lane_cell(const attn__window_work *work, int64_t lane)
{
    return (work->cell0 + work->cell + lane) / work->plan->per_cell;
}

/* Runs one item of a pass for all heads (window_run.c). */
void attn__window_item(attn__window_work *heads, int64_t item);
void attn__window_tables_store(attn__window_work *head);

/* Runs the band of lines [first, end) in the pass for all gradients (window_once.c). */
void attn__window_once_band(attn__window_work *work, int64_t first, int64_t end);
void attn__window_list_by_query(const attn__window_axis *axis, int64_t query, attn__window_list *list);
/* Returns the slot with the strips of the line at `at`, `free`. Reads the strips if the slot does not have them yet. */
int64_t attn__window_slot_of(attn__window_work *work, const int64_t *at, int64_t free);
/* Prepares strips of zeros, which are used for lines outside of the axis. */
void attn__window_outside_start(attn__window_work *work);
/* Reads rows of the line into `out`, for all lanes of the tile. `op` is q, dout or o. */
void attn__window_read_queries(const attn__window_work *work, attn__operand op, const void *base, float *out);
/* Reads the log-sum-exps of n lanes from query `low` on, times log2(e). A row without keys gets +infinity. Subtracts
 * the gradients of the log-sum-exps from delta. */
void attn__window_read_lse(const attn__window_work *work, int64_t lse_at, int64_t low, int64_t n, float *rows,
                           float *delta);
/* Returns the offsets of a line. `at` has its indices along the outer axes, of keys if `keys` is set, else of queries.
 * `free` is its linear index over the free QUERY axes. */
attn__place attn__window_line(const attn__window_work *work, const int64_t *at, int64_t free, bool keys);
/* Initializes a pair of lines. Its taps must be set before. */
void attn__window_pair_start(attn__window_work *work, attn__window_pair *pair, const int64_t *at, int64_t free);
void attn__window_drop_line(attn__window_work *work, int64_t slot, uint64_t row, int64_t first);
void attn__window_drop(attn__window_work *work, float *s, int64_t ld);
/* Computes weights and gradients of scores for the block's entries. Prepares `gradients` for their product with keys
 * or, in the pass by key, with queries. */
void attn__window_find(attn__window_work *work, const attn__window_weights *weights, attn__tap_block *gradients);
void attn__window_mix(attn__window_work *work, attn__tap_block *block, bool marked);
void attn__window_write(attn__window_work *work, attn__operand op, void *base, float *tile, const float *factor);
/* Prefetches what the next line reads and this line writes, from lane `x` on. Each pair of the line does a part. */
void attn__window_once_prefetch(attn__window_work *work, int64_t pair, int64_t x);
/* Computes the line's table terms. attn__window_once_margins later adds to dq and to the gradients of tables. */
void attn__window_once_terms(attn__window_work *work);
void attn__window_once_margins(attn__window_work *work);

static inline void attn__window_factors(attn__window_work *work, float factor)
{
    for (int i = 0; i < work->plan->taps->width; i++)
        work->s.softmax.factor[i] = factor;
}

/* Reports whether the block may have marks in place of weights, for lanes that do not attend a tap. */
static inline bool attn__window_has_marks(const attn__window_work *work, const attn__window_block *block)
{
    return block->ragged || work->canonical->has_bias || work->plan->masked || work->canonical->has_dropout;
}

/* Returns the kind of tables that are multiplied by the lanes. The next function returns the kind for strips of q or
 * k. */
static inline attn_relative_kind attn__window_lane_kind(const attn__window_pass *pass)
{
    return pass->by_key ? ATTN_RELATIVE_KEY : ATTN_RELATIVE_QUERY;
}
static inline attn_relative_kind attn__window_strip_kind(const attn__window_pass *pass)
{
    return pass->by_key ? ATTN_RELATIVE_QUERY : ATTN_RELATIVE_KEY;
}

/* Returns the head's strip of keys or queries. If `values` is set, returns its strip of values or output gradients. */
static inline float *attn__window_strip(const attn__window_work *work, bool values, int64_t slot, int64_t phase)
{
    int64_t n = (values ? work->plan->values : work->plan->channels) * work->plan->heads;
    return (values ? work->s.b : work->s.a) + (slot * work->pass->strip_phases + phase) * n * work->pass->ld;
}

static inline bool attn__window_has_outer(const attn__window *plan, attn_relative_kind kind)
{
    for (int i = 0; i < plan->naxes - 1; i++)
        if (plan->has_table[kind][i])
            return true;
    return false;
}

#endif
