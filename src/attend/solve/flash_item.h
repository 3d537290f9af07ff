/* SPDX-License-Identifier: MIT
 *
 * flash_item.h - the state of one work item, shared by the files of the tiled forward pass.
 */
#ifndef ATTN_ATTEND_FLASH_ITEM_H
#define ATTN_ATTEND_FLASH_ITEM_H

#include "attend/solve/flash.h"
#include "attend/block/visible.h"
#include "attend/block/prefetch.h"

/* Queries as wide as the register tile or a little less. */
typedef struct attn__flash_subtile {
    int64_t index, lane, width; /* lane: the first; width: lanes with the padding */
    int64_t lanes;              /* without */
} attn__flash_subtile;

/* A subtile's step of the softmax that is pending on AMX. */
typedef struct attn__flash_pending {
    bool any, changed; /* changed: first multiply earlier sums by t->s.shrink */
    int64_t keys;
    int tiles; /* which of t->s.tiles.p */
    attn__flash_subtile sub;
    attn__bf16x3_softmax softmax;
} attn__flash_pending;

typedef struct attn__flash_item {
    const attn__canonical *canonical;
    const attn__flash *flash;
    const attn_arrays *arrays;
    attn__flash_scratch s;
    int64_t first, count, padded; /* queries: the first, how many, and that up to whole vectors */
    int64_t subtiles;
    int64_t k_base, v_base;         /* the batch item's part of the offsets */
    bool q_ready;                   /* t->s.q is filled */
    bool q_finite;                  /* all queries are finite, and in parts */
    int64_t key_begin, key_end;     /* outside, no query of the item has a key */
    int64_t next_batch, next_first; /* the item that this thread will probably run next; next_batch < 0: none */
    attn__prefetch prefetch;
    /* On AMX: scores whose exponentials are computed during the next products, and earlier weights whose product with
     * the values is one of those. */
    attn__flash_pending scored, weighed;
} attn__flash_item;

attn__flash_subtile attn__flash_subtile_at(const attn__flash_item *t, int64_t i);

/* One block of keys, in panels. */
typedef struct attn__flash_keys {
    int64_t at, keys;
    int64_t packed; /* keys in the panels, of which `keys` are looked at */
    bool parts;     /* on AMX */
    const float *k; /* rows ... */
    int64_t ldk;    /* ... so far apart: the panel, or the caller's array */
    bool careful;   /* a value is not finite and may get no weight for being masked or dropped: 0 times it is 0; or a
                     * table of values is not, whose rows a subtile reads for all its queries */
} attn__flash_keys;

/* Whether some pairs may get no weight. */
static inline bool attn__flash_may_hide(const attn__canonical *canonical, const attn__flash *f)
{
    return canonical->has_bias || canonical->has_mask || canonical->has_blocks || f->nlimits || canonical->has_dropout;
}

/* Sets the offsets of the item's queries, their dropout keys, key ranges and running sums. */
void attn__flash_begin(attn__flash_item *t, int64_t batch);
void attn__flash_write_lse(const attn__flash_item *t);

/* Offsets of the block's keys in one operand. */
void attn__flash_key_offsets(const attn__flash_item *t, const attn__flash_keys *b, size_t stride, int64_t base,
                             int64_t *out);
/* Fills the tables of the block's keys for masks and dropout. */
void attn__flash_key_tables(attn__flash_item *t, const attn__flash_keys *b);
/* The steps between the two products, on the subtile's scores in t->s.s.  Caps them, adds bias, applies masks; true if
 * any: */
bool attn__flash_mask(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub);
/* notes the scores of masked keys in t->s.hidden; */
void attn__flash_note_hidden(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub);
/* computes weights, applies dropout; `top` is each lane's largest score or NULL.  True: multiply earlier sums by
 * t->s.shrink. */
bool attn__flash_softmax(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub, const float *top);

/* Queries as rows of lanes, unless they are there already. */
void attn__flash_gather_queries(attn__flash_item *t);

/* Relative tables (flash_tables.c): reads them for the item; */
void attn__flash_tables_begin(const attn__flash_item *t, int64_t batch);
/* finds the indices of the block's keys; */
void attn__flash_tables_keys(const attn__flash_item *t, const attn__flash_keys *b);
/* sets t->s.s to the terms of those of queries, false if there are none; */
bool attn__flash_tables_terms(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub);
/* adds those of values to the sums, after the values themselves; */
void attn__flash_tables_values(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub);
/* whether those of values are finite. */
bool attn__flash_tables_finite(const attn__flash_item *t);

/* On AMX (flash_amx.c).  Packs queries as tiles; */
void attn__flash_amx_queries(attn__flash_item *t);
/* packs keys and values as tiles, returns whether the values are finite, sets b->parts; */
bool attn__flash_amx_panels(attn__flash_item *t, attn__flash_keys *b);
/* scores to t->s.s, of bf16 without the scale; */
void attn__flash_amx_score(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub);
/* multiplies them by the scale, unless the queries contain it; */
void attn__flash_amx_scale(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub);
/* does everything else of a subtile with a block of keys, ... */
void attn__flash_amx_see(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub);
/* Number of prefetch portions while a subtile sees a block. */
int64_t attn__flash_amx_portions(const attn__flash_item *t, const attn__flash_keys *b);
/* ... but the product with the last one's values, which is pending until this call.  Call it before panels change. */
void attn__flash_amx_end(attn__flash_item *t);

/* Fills from, to, the spans of the subtiles, and key_begin and key_end. */
void attn__flash_find_limits(attn__flash_item *t, int64_t batch);

/* What the lanes of a subtile see of the block's keys by the mask of blocks; ALL without one. */
attn__block_view attn__flash_blocks_seen(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub);

/* Lets every subtile see keys [at, at + keys). */
void attn__flash_key_block(attn__flash_item *t, int64_t at, int64_t keys);

/* Plans what to prefetch during a key block: the next block, or after the last one the output rows and the next item's
 * queries and first keys. */
void attn__flash_plan_prefetch(attn__flash_item *t, int64_t at, int64_t keys, int64_t portions);

#endif
