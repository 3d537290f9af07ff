/* SPDX-License-Identifier: MIT
 *
 * flash.h - flash attention's forward pass: its plan, the memory of one thread, an item.
 *
 * A work item is one batch item and a block of queries; queries are the lanes of the vectors.  Q is packed once,
 * transposed and scaled.  For each block of keys, K and V are packed into panels, which absorbs strides and bf16.  Then
 * for each subtile of queries, as wide as the register tile:
 *
 *     S^T = K Q^T          keys x queries, stays in the first cache
 *     bias, masks          by lanes
 *     m, l, P^T = 2^(S^T - m)      online softmax by lanes: the maximum needs no operation across a vector
 *     O^T = O^T * shrink + V^T P^T
 *
 * At the end O^T / l is transposed back.  (Milakov and Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022,
 * arXiv:2205.14135.)
 */
#ifndef ATTN_ATTEND_FLASH_H
#define ATTN_ATTEND_FLASH_H

#include "attend/block/prefetch.h"
#include "attend/block/rows.h"
#include "attend/block/visible.h"
#include "attend/plan/solver.h"
#include "attend/solve/flash_tables.h"
#include "kernels/online_softmax/online_softmax.h"
#include "kernels/bf16x3/bf16x3.h"
#include "kernels/gemm_tile/gemm_tile.h"
#include "kernels/gemm_tile/gemm_tile_bf16.h"

enum { ATTN__FLASH_CHANNELS = 512 };

/* The plan; constant during execution. */
typedef struct attn__flash {
    const attn__gemm_tile_kernel *tile;
    const attn__online_softmax_kernel *lanes;
    const attn__gemm_tile_bf16_kernel *pairs; /* products of bf16 pairs; NULL: bf16 becomes f32 in the panels */
    int64_t channel_pairs, ld_pairs; /* pairs of channels, and the row stride of k's panel of pairs; that of v is ldv */
    const attn__bf16x3_kernel *amx;  /* products on AMX; NULL: on vectors */
    int terms;                       /* number of bf16 terms per number on AMX */
    attn_dtype keys_dtype;           /* the type of k and v */
    int64_t channels, values;        /* the channels of q and k; those of v and o */
    int64_t held;                    /* channels of o in scratch memory */
    int64_t query_block, key_block;  /* the most queries of an item; the most keys of a step */
    int64_t ldk, ldv;                /* row strides of the panels */
    int64_t subtiles;                /* the most subtiles of one item */
    int64_t vectors;                 /* the most vectors of a subtile */
    const int64_t *channel[ATTN__OPERANDS]; /* offsets of the channels; NULL where they are adjacent */
    attn__visible visible;
    attn__flash_tables tables;
    int64_t offsets[]; /* the memory of `channel` */
} attn__flash;

/* The keys of a subtile. */
typedef struct attn__flash_span {
    int64_t begin, end; /* keys outside this range are masked */
    attn__visible_span limits;
    bool started; /* o holds sums */
} attn__flash_span;

/* Operands in pairs: q and k of channels, v and weights of keys. */
typedef struct attn__flash_pairs {
    uint32_t *q, *k, *v, *p;
} attn__flash_pairs;

/* Operands as bf16 terms for AMX: q as B, k as A, v transposed as A, weights as B. */
typedef struct attn__flash_tiles {
    attn__bf16x3_side q, k, v, p[2];
} attn__flash_tiles;

/* One thread's memory. */
typedef struct attn__flash_scratch {
    float *q; /* [subtile][channels][width], times scale * log2(e) unless in pairs */
    float *o; /* [subtile][values][width] */
    float *m, *l, *shrink;
    float *s;       /* [key_block][width] */
    float *other_s; /* the scores of a second subtile, on AMX */
    float *top;     /* [width]: the largest score of each lane */
    float *extra;   /* [width] for the bias, the mask or a further table */
    float *k, *v;   /* panels: [key_block][ldk]; in the tile kernel's groups, [values / group][keys][group], in wide
                   * [key_block][ldv] */
    attn__flash_pairs pairs;
    attn__flash_tiles tiles;
    /* Where a value is not finite: which pairs are attended, as s; the panel of values with zeros; and of each of its
     * groups of channels the keys, [key_block], that have such numbers there. */
    uint8_t *alive;
    float *clean;
    int64_t *bad, *nbad;
    int64_t *at[ATTN__OPERANDS]; /* offsets of the item's queries and of the block's keys */
    int64_t *bias_key;           /* what each key adds to the offset of a bias */
    /* For the item's queries. */
    attn__visible_rows rows;
    uint32_t *key_low, *key_high;
    attn__flash_span *span; /* the range of keys of each subtile */
    /* For the block's keys. */
    attn__visible_keys keys;
    uint32_t *column;
    attn__flash_table_memory table[ATTN_MAX_RELATIVE];
} attn__flash_scratch;

/* Queries as wide as the register tile or a little less. */
typedef struct attn__flash_subtile {
    int64_t index, lane, width; /* lane: the first lane; width: number of lanes, padding included */
    int64_t lanes;              /* number of lanes without padding */
} attn__flash_subtile;

/* A subtile's step of the softmax that is pending on AMX. */
typedef struct attn__flash_pending {
    bool any, changed; /* changed: first multiply earlier sums by t->s.shrink */
    int64_t keys;
    int tiles; /* index into t->s.tiles.p */
    attn__flash_subtile sub;
    attn__bf16x3_softmax softmax;
} attn__flash_pending;

typedef struct attn__flash_item {
    const attn__canonical *canonical;
    const attn__flash *flash;
    const attn_arrays *arrays;
    attn__flash_scratch s;
    int64_t batch;
    int64_t first, count, padded; /* first query, number of queries, that number in whole vectors */
    int64_t subtiles;
    bool q_ready;                   /* t->s.q is filled */
    bool q_finite;                  /* all queries are finite, and split into bf16 terms */
    int64_t key_begin, key_end;     /* keys outside this range are masked for all queries of the item */
    int64_t next_batch, next_first; /* the item that this thread will probably run next; next_batch < 0: none */
    attn__prefetch prefetch;
    /* On AMX: scores whose exponentials are computed during the next products, and earlier weights whose product with
     * the values is one of those. */
    attn__flash_pending scored, weighed;
} attn__flash_item;

/* One block of keys, in panels. */
typedef struct attn__flash_keys {
    int64_t at, keys;
    int64_t packed; /* number of keys in the panels; `keys` of them are used */
    bool amx;       /* whether products run on AMX */
    const float *k; /* the panel, or the caller's array */
    int64_t ldk;    /* row stride of k */
    bool careful;   /* a value is not finite and may get no weight for being masked or dropped: 0 times it is 0; or a
                     * table of values is not, whose rows a subtile reads for all its queries */
} attn__flash_keys;

/* Whether some pairs may get no weight. */
static inline bool attn__flash_may_hide(const attn__canonical *canonical, const attn__flash *f)
{
    return canonical->has_bias || canonical->has_dropout || attn__visible_masks(&f->visible);
}

/* The parts that hide keys of the block from the subtile. */
static inline unsigned attn__flash_hidden(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    attn__visible_tile tile = {&t->s.rows, sub.lane, sub.lanes, &t->s.keys, 0, b->keys};
    return attn__visible_of(&tile, &t->s.span[sub.index].limits);
}

/* flash.c.  The steps between the two products, on the subtile's scores in t->s.s.  Caps them, adds bias, applies masks;
 * true if any: */
bool attn__flash_mask(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub);
/* computes weights, applies dropout; `top` is each lane's largest score or NULL.  True: multiply earlier sums by
 * t->s.shrink. */
bool attn__flash_softmax(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub, const float *top);

/* flash_amx.c.  Packs queries as tiles; */
void attn__flash_amx_queries(attn__flash_item *t);
/* packs keys and values as tiles, returns whether the values are finite, sets b->amx; */
bool attn__flash_amx_panels(attn__flash_item *t, attn__flash_keys *b);
/* scores to t->s.s, of bf16 without the scale; */
void attn__flash_amx_score(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub);
/* multiplies them by the scale, unless the queries contain it; */
void attn__flash_amx_scale(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub);
/* does everything else of a subtile with a block of keys, ... */
void attn__flash_amx_see(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub);
/* ... but the product with the last one's values, which is pending until this call.  Call it before panels change. */
void attn__flash_amx_end(attn__flash_item *t);

#endif
