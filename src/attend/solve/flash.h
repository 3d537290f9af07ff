/* SPDX-License-Identifier: MIT
 *
 * flash.h - the forward pass of flash attention: its plan, the memory of a thread, and an item.
 *
 * A work item is one batch item and a block of queries. Queries are the lanes of the vectors.  Q is packed once,
 * transposed and scaled.  Each block of K and V is packed into panels, so that strides and bf16 need no other code.
 * Then each subtile of queries, as wide as the register tile, computes:
 *
 *     S^T = K Q^T          keys x queries, stays in the L1 cache
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

/* The plan, which is constant during execution. */
typedef struct attn__flash {
    const attn__gemm_tile_kernel *tile;
    const attn__online_softmax_kernel *lanes;
    const attn__gemm_tile_bf16_kernel *pairs; /* products of bf16 pairs; NULL: bf16 is converted to f32 in the panels */
    int64_t channel_pairs, ld_pairs;          /* pairs of channels; row stride of k's panel of pairs (v has ldv) */
    const attn__bf16x3_kernel *amx;           /* products on AMX; NULL: on vectors */
    int terms;                                /* number of bf16 terms per number on AMX */
    attn_dtype keys_dtype;                    /* data type of k and v */
    int64_t channels, values;                 /* channels of q and k; channels of v and o */
    int64_t held;                             /* channels of o in scratch memory, with padding */
    int64_t query_block, key_block;           /* most queries of an item; most keys of a step */
    int64_t ldk, ldv;                         /* row strides of the panels */
    int64_t subtiles;                         /* largest number of subtiles of an item */
    int64_t vectors;                          /* largest number of vectors of a subtile */
    const int64_t *channel[ATTN__OPERANDS];   /* offsets of channels; NULL: adjacent */
    attn__visible visible;
    attn__flash_tables tables;
    int64_t offsets[]; /* the memory of `channel` */
} attn__flash;

/* The range of keys of a subtile. */
typedef struct attn__flash_span {
    int64_t begin, end; /* keys outside this range are masked */
    attn__visible_span limits;
    bool started; /* o holds sums already */
} attn__flash_span;

/* Operands in pairs: q and k in pairs of channels, v and weights p in pairs of keys. */
typedef struct attn__flash_pairs {
    uint32_t *q, *k, *v, *p;
} attn__flash_pairs;

/* Operands as bf16 terms for AMX. q and weights p are operand B, k and the transposed v are operand A. */
typedef struct attn__flash_tiles {
    attn__bf16x3_side q, k, v, p[2];
} attn__flash_tiles;

/* The memory of one thread. */
typedef struct attn__flash_scratch {
    float *q; /* [subtile][channels][width]: queries times scale * log2(e), unscaled in pairs */
    float *o; /* [subtile][values][width] */
    float *m, *l, *shrink;
    float *s;       /* [key_block][width]: scores, then weights */
    float *other_s; /* scores of a second subtile, on AMX */
    float *top;     /* [width]: largest score of each lane */
    float *extra;   /* [key_block][width]: the bias, the mask or a further table */
    float *k, *v;   /* panels. k: [key_block][ldk]; v: groups of the tile kernel, [values / group][keys][group], in
                     * pairs [key_block][ldv] */
    attn__flash_pairs pairs;
    attn__flash_tiles tiles;
    /* If values are not finite: `alive`, with the shape of s, marks attended pairs. `clean` is the panel of values with
     * zeros. `bad`, [group][key_block], lists the nbad[group] keys with such numbers in a group of channels. */
    uint8_t *alive;
    float *clean;
    int64_t *bad, *nbad;
    int64_t *at[ATTN__OPERANDS]; /* offsets of the item's queries and the block's keys */
    int64_t *bias_key;           /* offset of each key in the bias */
    /* Arrays of the item's queries. */
    attn__visible_rows rows;
    uint32_t *key_low, *key_high;
    attn__flash_span *span; /* the range of keys of each subtile */
    /* Arrays of the block's keys. */
    attn__visible_keys keys;
    uint32_t *column;
    attn__flash_table_memory table[ATTN_MAX_RELATIVE];
} attn__flash_scratch;

/* A part of the item's queries, at most as wide as the register tile. */
typedef struct attn__flash_subtile {
    int64_t index, lane, width; /* first lane; number of lanes with padding */
    int64_t lanes;              /* number of lanes without padding */
} attn__flash_subtile;

/* A softmax step of a subtile that is pending on AMX. */
typedef struct attn__flash_pending {
    bool any, changed; /* whether a step is pending; whether earlier sums must first be multiplied by t->s.shrink */
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
    int64_t first, count, padded; /* first query, number of queries, and that number rounded up to whole vectors */
    int64_t subtiles;
    bool q_ready;                   /* t->s.q is filled */
    bool q_finite;                  /* all queries are finite and split into bf16 terms */
    int64_t key_begin, key_end;     /* keys outside of this range are masked for all queries of the item */
    int64_t next_batch, next_first; /* the item that this thread will probably run next; next_batch < 0: none */
    attn__prefetch prefetch;
    /* On AMX: `scored` has scores whose exponentials are computed during the next products. `weighed` has weights whose
     * product with the values is one of these products. */
    attn__flash_pending scored, weighed;
} attn__flash_item;

/* A block of keys in panels. */
typedef struct attn__flash_keys {
    int64_t at, keys;
    int64_t packed; /* number of keys in the panels, of which the first `keys` are used */
    bool amx;       /* products run on AMX */
    const float *k; /* the panel of keys, or the caller's array */
    int64_t ldk;    /* row stride of k */
    bool careful;   /* a value is not finite and its pair may have no weight, or a table of values is not finite;
                     * products leave out such pairs, since 0 * NaN is NaN */
} attn__flash_keys;

/* Reports whether some pairs may have no weight. */
static inline bool attn__flash_may_hide(const attn__canonical *canonical, const attn__flash *f)
{
    return canonical->has_bias || canonical->has_dropout || attn__visible_masks(&f->visible);
}

/* Returns the parts that hide keys of the block from the subtile. */
static inline unsigned attn__flash_hidden(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    attn__visible_tile tile = {&t->s.rows, sub.lane, sub.lanes, &t->s.keys, 0, b->keys};
    return attn__visible_of(&tile, &t->s.span[sub.index].limits);
}

/* Applies softcap, bias and masks to the subtile's scores in t->s.s. Returns whether it changed any (flash.c). */
bool attn__flash_mask(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub);
/* Computes weights from the scores and applies dropout. `top` is each lane's largest score or NULL.  Returns true if
 * earlier sums must be multiplied by t->s.shrink (flash.c). */
bool attn__flash_softmax(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub, const float *top);

/* Packs the item's queries as tiles (flash_amx.c, as all functions below). */
void attn__flash_amx_queries(attn__flash_item *t);
/* Packs keys and values as tiles and sets b->amx. Returns whether the values are finite. */
bool attn__flash_amx_panels(attn__flash_item *t, attn__flash_keys *b);
/* Computes the scores in t->s.s. Scores of bf16 are not scaled. */
void attn__flash_amx_score(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub);
/* Multiplies the scores by the scale, unless the queries include it. */
void attn__flash_amx_scale(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub);
/* Runs a subtile with a block of keys. The product of weights and values stays pending. */
void attn__flash_amx_see(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub);
/* Runs pending products. It must be called before the panels change. */
void attn__flash_amx_end(attn__flash_item *t);

#endif
