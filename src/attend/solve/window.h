/* SPDX-License-Identifier: MIT
 *
 * window.h - the plan and the state of the window solver: each KEY axis is a window that slides along one QUERY
 * axis.
 *
 * Virtual taps.  Tap t of query i along one axis is at i * step + offset + t * dilation.  A window that is shifted
 * inwards by m taps is the same window with t counted from m.  Tap numbers may therefore be negative or exceed the
 * number of taps; each query attends a range [from, to) of them; the relative position of a pair depends only on t.
 * Masking borders and bands make the range smaller.
 *
 * Cells.  A position is (i + cell) * step + phase.  A tap has the same cell and phase for all i, so that it reads
 * adjacent cells of one phase's strip for adjacent queries.
 *
 * Heads.  A head of 8 channels fills half a cache line of a pixel and half of a transposed square.  Heads that are
 * adjacent in memory and share tables and masks are therefore interleaved in the lanes, cell by cell (`woven` of them):
 * a tap then moves `woven` lanes per cell, half a vector or whole vectors, so that loads rarely cross cache lines and
 * one vector serves several taps.  Other adjacent heads share a work item: the first reads the strips and blocks of
 * all, each computes its part, the last one writes.  Tiles, strips and blocks count lanes; a cell has `woven` lanes.
 *
 * Passes.  By query: queries are the lanes, strips hold keys and values.  By key, for their gradients: keys are the
 * lanes, strips hold queries and output gradients.  Both run the same blocks.  Each element has one writer, so that the
 * bits do not depend on the threads.  Where queries and keys are the positions of one image, one pass computes all
 * gradients (window_once.c).
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

#define ATTN__WINDOW_KINDS 3 /* indexed by attn_relative_kind */
enum { ATTN__WINDOW_AXES = ATTN_MAX_WINDOWS, ATTN__WINDOW_SLOTS = 16, ATTN__WINDOW_HEADS = 8, ATTN__WINDOW_PASSES = 3 };

/* One window. */
typedef struct attn__window_axis {
    attn_window window;
    int query, key;      /* indices of the axis in the groups of queries and keys */
    int64_t n, taps;     /* numbers of queries and taps */
    int64_t first, last; /* virtual taps that some query attends */
    int64_t low, high;   /* virtual taps that the bands allow */
} attn__window_axis;

typedef struct attn__window_range {
    int64_t from, to, moved; /* moved: the virtual tap that is the window's tap 0 */
} attn__window_range;

/* The cell that a tap reaches, and the phase of the positions there. */
static inline int64_t attn__window_cell(const attn__window_axis *axis, int64_t tap)
{
    return attn__floor_div(axis->window.offset + tap * axis->window.dilation, axis->window.step);
}

static inline int64_t attn__window_phase(const attn__window_axis *axis, int64_t tap)
{
    return axis->window.offset + tap * axis->window.dilation - attn__window_cell(axis, tap) * axis->window.step;
}

/* The taps that a query attends; empty ranges have from >= to. */
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

/* The lines that a line of the lanes meets along one outer axis. */
typedef struct attn__window_list {
    int64_t n;
    int64_t *tap, *at; /* at: query or position, -1 for a position outside a zero border */
} attn__window_list;

/* How one pass divides the work. */
typedef struct attn__window_pass {
    bool by_key, once;
    int64_t lines, band, bands;
    int64_t cells, tile, tiles; /* lanes of a line, of a tile, and tiles */
    /* With `once`: lanes before those whose gradients the tile writes, and their number; otherwise 0 and all lanes. */
    int64_t left, own;
    int64_t sums;          /* once: lines of keys and values with partial gradients */
    int64_t recent;        /* once: lanes for which weights are kept */
    int64_t phases;        /* phases of the lanes: the step, in the pass by key; otherwise 1 */
    int64_t strip_phases;  /* phases of the strips: the step, in the pass by query; otherwise 1 */
    int64_t ld, margin_ld; /* row strides of a strip and of the margins */
    int64_t modulus[ATTN__WINDOW_AXES], divisor[ATTN__WINDOW_AXES], slots; /* slot of a line: at / divisor % modulus */
    int64_t pairs, entries;                                                /* the most pairs and entries of a block */
    int64_t items;                                                         /* items of one batch index */
} attn__window_pass;

/* The recipe's data. */
typedef struct attn__window {
    const attn__window_kernel *taps;
    const attn__online_softmax_kernel *lanes;
    const attn__gemm_tile_kernel *tile;
    int naxes, nfree;
    attn__window_axis axis[ATTN__WINDOW_AXES]; /* the last axis is that of the lanes */
    int free_axis[ATTN_MAX_DIMS];              /* QUERY axes without a window */
    int64_t free;                              /* the product of their lengths */
    int64_t channels, values;
    int heads;             /* heads of an item; the length of the last batch axis is a multiple of it */
    int64_t woven;         /* heads whose lanes are interleaved; `heads` or `woven` is 1 */
    bool masked, by_pairs; /* mask or lengths; they differ from query to query */
    int lens_axis;         /* the axis that the lengths limit */
    float kept;            /* factor of weights that dropout keeps */
    bool capped;           /* backward: capped scores are kept */
    bool has_table[ATTN__WINDOW_KINDS][ATTN__WINDOW_AXES]; /* indexed by attn_relative_kind */
    const int64_t *channel[ATTN__OPERANDS];                /* offsets of channels, NULL where adjacent */
    int64_t unit;                                          /* lanes between two taps along the lanes' axis */
    bool once;                                             /* backward in one pass */
    attn__window_pass pass[ATTN__WINDOW_PASSES];           /* by query, by key, both at once */
    const int64_t *table_channel[ATTN_MAX_RELATIVE];       /* INT64_MIN where the table does not serve the channel */
    int64_t table_floats, table_at[ATTN__WINDOW_KINDS][ATTN__WINDOW_AXES];
    size_t share, slot_share; /* bytes for a thread; bytes for a slot of shared sums */
    int64_t memory[];
} attn__window;

/* The block of lanes that a tile is cut into. */
typedef struct attn__window_block {
    int64_t first, n; /* virtual taps first + k * stride, k < n */
    bool ragged;      /* whether some lane attends only some of these taps */
} attn__window_block;

/* A line of the strips that the line of the lanes meets. */
typedef struct attn__window_pair {
    int64_t slot;
    int64_t tap[ATTN__WINDOW_AXES];  /* the taps of the outer axes */
    int64_t bias, dbias, mask, lens; /* offsets without the lanes' axis */
    int64_t position;                /* the position of the line of keys along lens_axis */
    bool outside;                    /* whether the line of keys is outside, in a zero border */
    int64_t line, number;            /* with `once`: the line of keys, and the index among the pairs of that line */
    uint32_t column;                 /* dropout's column of the outer axes */
} attn__window_pair;

/* Lines of keys that meet a line of queries at once, so that the queries are loaded into L1 once. */
enum { ATTN__WINDOW_TOGETHER = 2 };

/* Weights and gradients of scores of a line of queries with a line of keys, [tap][pass->recent]: those of the last
 * queries alone, from lane `start` of the tile on. */
typedef struct attn__window_recent {
    float *p, *ds;
    int64_t start;
} attn__window_recent;

/* Further state of the pass for all gradients.  Rows are as long as a strip; lane x is query x of the tile.  Partial
 * gradients are in blocks of [channels][width]. */
typedef struct attn__window_once {
    int64_t *query_at;             /* where in a strip of queries each tap of the lanes' axis is, seen from a key */
    attn__window_block *keys;      /* the taps that reach a block of keys */
    bool *fill;                    /* fill this block of queries with marks first: its neighbours have other taps */
    float *q, *dout, *lse, *delta; /* the strips of the line */
    float *dq, *dk, *dv;           /* dq of the line; dk and dv of the lines of keys, in slots */
    attn__window_recent recent[ATTN__WINDOW_TOGETHER];
    float *marks; /* one row of marks for a block */
    int64_t far;  /* lanes from a query to the last key that it meets */
} attn__window_once;

/* Entries of a block: a tap of the lanes' axis and a line of the strips. */
typedef struct attn__window_entries {
    int32_t *number;  /* number of the virtual tap */
    int64_t *a, *b;   /* offsets of the entry in the two strips */
    int64_t *range;   /* first lane of the entry in `ranges` */
    int64_t *state;   /* by key: offset of lse and delta in `rows` */
    int64_t *flag;    /* offset of the mask in `flags` */
    uint32_t *column; /* dropout's column of one pair */
} attn__window_entries;

/* The query of each lane of the tile, or by key of the strips, and its attn__window_range. */
typedef struct attn__window_ranges {
    int32_t *query, *from, *to, *moved;
} attn__window_ranges;

/* A block of lanes: [channels][width]. */
typedef struct attn__window_lanes {
    float *a, *b, *o, *out_a, *out_b, *old;
    float *flags; /* [width]: 0 at masked keys, by key */
    float *terms; /* terms of the tables: [tap and pair][width] */
} attn__window_lanes;

/* Of each lane of a block. */
typedef struct attn__window_softmax {
    float *m, *l, *factor, *ones, *lse, *delta;
} attn__window_softmax;

/* One thread's memory, cut for one pass. */
typedef struct attn__window_scratch {
    attn__window_list list[ATTN__WINDOW_AXES];
    attn__window_pair *pair;
    attn__window_block *block;
    attn__window_ranges ranges;
    attn__window_entries entries;
    attn__window_lanes lanes;
    attn__window_softmax softmax;
    float *flags;           /* 0 at masked keys; in the pass by query, one row for each slot */
    uint32_t *drop_key;     /* dropout: low and high halves, like lse and delta */
    int64_t *shift, *phase; /* for each tap of the block: the lane offset in the strip, and the strip */
    int64_t *tap_at;        /* offsets of taps */
    int64_t *tag, *offset;
    float *a, *b;                          /* strips: k and v, or q and dout */
    float *rows;                           /* by key: lse and delta of each slot */
    float *terms[2], *pair_rows[2];        /* table terms of strips a and b: per lane tap, and per pair */
    float *pair_table[ATTN__WINDOW_KINDS]; /* [pair][channel]: the outer axes' table rows, added up */
    float *s, *dp;
    float *capped;               /* backward: the scores after the softcap */
    float *margin, *pair_margin; /* sums of weights over pairs [tap], and over taps [pair], margin_ld apart */
    float *line;                 /* strips that are being computed */
    float *table;                /* tables of the batch index (see table_at) */
    double *table_sums;          /* the gradients of the tables */
    attn__window_once once;
} attn__window_scratch;

/* One thread at work on one head of an item; those of the heads before and after are its neighbours in an array. */
typedef struct attn__window_work {
    int head;
    const attn__canonical *canonical;
    const attn__window *plan;
    const attn__window_pass *pass;
    const attn_arrays *arrays;
    attn__sums sums; /* shared gradients of the slot */
    attn__window_scratch s;
    attn__place place, line;             /* offsets of the batch index, and of the line */
    int64_t table_at[ATTN_MAX_RELATIVE]; /* offsets of the tables that were read */
    bool tables_read, tables_finite;
    bool described; /* whether an earlier item described the same tile */
    int64_t described_item;
    int64_t cell0, phase;         /* the tile's first lane, and the phase of its lanes */
    int64_t live;                 /* number of lanes of the tile that are in use */
    int64_t index[ATTN_MAX_DIMS]; /* indices of the QUERY axes, or positions of the outer axes */
    int64_t pairs;
    int64_t cell, lanes; /* first lane of the block in the tile, and number of lanes in use */
    attn__window_block now;
    const float *strip[2], *flags; /* the addresses that the offsets of entries are relative to */
    int64_t entry;                 /* the first entry of the block */
    int64_t stride;                /* the stride between the taps of the block */
} attn__window_work;

/* The arrays that a block of a backward pass reads and writes: its lanes' queries and output gradients (by key: keys
 * and values), in rows `tile_ld` apart, and weights and gradients of scores, `ld` apart. */
typedef struct attn__window_weights {
    float *a, *b, *p, *ds;
    const float *lse, *delta;
    int64_t tile_ld, ld;
    bool dbias; /* add the gradients to those of the bias */
} attn__window_weights;

/* The axis of the lanes. */
static inline const attn__window_axis *attn__window_lane_axis(const attn__window *plan)
{
    return &plan->axis[plan->naxes - 1];
}

/* The channels of q and k, or of v and o. */
static inline int64_t attn__window_channels(const attn__window *plan, attn__operand op)
{
    return attn__operand_table[op].roles & ATTN__IN_VALUE ? plan->values : plan->channels;
}

/* The stride between the arrays of interleaved heads. */
static inline int64_t attn__window_head_stride(const attn__window_work *work, attn__operand op)
{
    const attn__group *batch = &work->canonical->batch;
    return work->plan->woven > 1 ? attn__stride(&batch->axis[batch->n - 1].dim, op) : 0;
}

/* The cell of a lane of the block: the lane's query, or by key its position's. */
static inline int64_t attn__window_lane_cell(const attn__window_work *work, int64_t lane)
{
    return (work->cell0 + work->cell + lane) / work->plan->woven;
}

/* window_run.c: one item of a pass, and after the last one of a slot, the gradients of its tables
 * to the shared sums. */
void attn__window_item(attn__window_work *heads, int64_t item);
void attn__window_tables_store(attn__window_work *head);

/* window_once.c: lines [first, end) in the pass for all gradients.  The passes share: */
void attn__window_once_band(attn__window_work *work, int64_t first, int64_t end);
void attn__window_list_by_query(const attn__window_axis *axis, int64_t query, attn__window_list *list);
/* The slot that holds the line's strips, read now unless they are there from an earlier line. */
int64_t attn__window_slot_of(attn__window_work *work, const int64_t *at, int64_t free);
/* Strips that stand for lines outside the border. */
void attn__window_outside_start(attn__window_work *work);
/* The line's queries, or output gradients, or outputs: all lanes of the tile. */
void attn__window_read_queries(const attn__window_work *work, attn__operand op, const void *base, float *out);
/* Log-sum-exps of n lanes from query `low` on, base 2; +inf if a row is empty. Subtracts their gradients from delta. */
void attn__window_read_lse(const attn__window_work *work, int64_t lse_at, int64_t low, int64_t n, float *rows,
                           float *delta);
/* Offsets of a line: `at` of the outer axes on the side of the queries or keys, `free` of the free QUERY axes. */
attn__place attn__window_line(const attn__window_work *work, const int64_t *at, int64_t free, bool keys);
/* A pair of lines whose taps are known. */
void attn__window_pair_start(attn__window_work *work, attn__window_pair *pair, const int64_t *at, int64_t free);
void attn__window_drop_line(attn__window_work *work, int64_t slot, uint64_t row, int64_t first);
void attn__window_drop(attn__window_work *work, float *s, int64_t ld);
/* Weights and gradients of the scores of the block's entries; the product of the latter with keys, by key queries. */
void attn__window_find(attn__window_work *work, const attn__window_weights *weights, attn__tap_block *gradients);
void attn__window_mix(attn__window_work *work, attn__tap_block *block, bool marked);
void attn__window_write(attn__window_work *work, attn__operand op, void *base, float *tile, const float *factor);
/* Prefetches, for lanes of the tile from `x` on, what the next line reads and what this one writes, divided among the
 * line's pairs. */
void attn__window_once_prefetch(attn__window_work *work, int64_t pair, int64_t x);
/* Rows of the line's terms of tables; and dq += margins x tables, with the tables' gradients. */
void attn__window_once_terms(attn__window_work *work);
void attn__window_once_margins(attn__window_work *work);

/* Sets one factor for all lanes. */
static inline void attn__window_factors(attn__window_work *work, float factor)
{
    for (int i = 0; i < work->plan->taps->width; i++)
        work->s.softmax.factor[i] = factor;
}

/* Some weights of the block may be marks, of lanes that take no part. */
static inline bool attn__window_has_marks(const attn__window_work *work, const attn__window_block *block)
{
    return block->ragged || work->canonical->has_bias || work->plan->masked || work->canonical->has_dropout;
}

/* The operand kinds' tables that belong to the lanes and to the strips of q and k. */
static inline attn_relative_kind attn__window_lane_kind(const attn__window_pass *pass)
{
    return pass->by_key ? ATTN_RELATIVE_KEY : ATTN_RELATIVE_QUERY;
}
static inline attn_relative_kind attn__window_strip_kind(const attn__window_pass *pass)
{
    return pass->by_key ? ATTN_RELATIVE_QUERY : ATTN_RELATIVE_KEY;
}

/* The head's strip of keys or queries (of values or output gradients). */
static inline float *attn__window_strip(const attn__window_work *work, bool values, int64_t slot, int64_t phase)
{
    int64_t n = (values ? work->plan->values : work->plan->channels) * work->plan->heads;
    return (values ? work->s.b : work->s.a) + (slot * work->pass->strip_phases + phase) * n * work->pass->ld;
}

/* True if some outer axis has a table of the kind. */
static inline bool attn__window_has_outer(const attn__window *plan, attn_relative_kind kind)
{
    for (int i = 0; i < plan->naxes - 1; i++)
        if (plan->has_table[kind][i])
            return true;
    return false;
}

#endif
