/* SPDX-License-Identifier: MIT
 *
 * flash.h - the forward pass of flash attention: its plan, the memory of a thread, and an item.
 *
 * A work item is one batch item and a block of queries. Queries are the lanes of the vectors.  Q is transposed, scaled
 * and packed once.  Each block of K and V is packed into panels, so that strides and bf16 need no other code. Then each
 * subtile of queries, as wide as the register tile, computes:
 *
 *     S^T = K Q^T          keys x queries, stays in the L1 cache
 *     bias, masks          by lanes
 *     m, l, P^T = 2^(S^T - m)      online softmax by lanes, so the maximum needs no operation across a vector
 *     O^T = O^T * shrink + V^T P^T
 *
 * At the end O^T / l is transposed back.  (Milakov and Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022,
 * arXiv:2205.14135.)
 */
#ifndef ATTN_ATTEND_FLASH_H
#define ATTN_ATTEND_FLASH_H

#include "attend/block/prefetch.h"
#include "attend/block/rows.h"
#include "attend/block/tile.h"
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
    const attn__gemm_tile_bf16_kernel *pairs; /* kernel of bf16 pairs; NULL: bf16 is converted to f32 in the panels */
    int64_t channel_pairs, ld_pairs;          /* channels / 2, rounded up; row stride of pairs.k (pairs.v has ldv) */
    const attn__bf16x3_kernel *amx;           /* kernel for products on AMX; NULL: vectors */
    int terms;                                /* number of bf16 terms per number on AMX */
    attn_dtype keys_dtype;
    int64_t channels, values;               /* channels of q and k; channels of v and o */
    int64_t held;                           /* channels of o in scratch memory, with padding */
    int64_t query_block, key_block;         /* max number of queries in a block; of keys in a block */
    int64_t ldk, ldv;                       /* row strides of the panels of k and v */
    int64_t subtiles;                       /* largest number of subtiles of an item */
    int64_t vectors;                        /* largest number of vectors of a subtile */
    const int64_t *channel[ATTN__OPERANDS]; /* offsets of channels; NULL: adjacent */
    attn__tile_plan tiles;
    attn__flash_tables tables;
    int64_t offsets[]; /* the memory of `channel` */
} attn__flash;

/* The keys that a subtile attends. */
typedef struct attn__flash_span {
    int64_t begin, end; /* keys outside of [begin, end) are masked */
    attn__visible_span limits;
    bool started; /* o has the sums of earlier blocks */
} attn__flash_span;

/* Operands as pairs of bf16 numbers. q and k have pairs of channels. v and the weights p have pairs of keys. */
typedef struct attn__flash_pairs {
    uint32_t *q, *k, *v, *p;
} attn__flash_pairs;

/* Operands as bf16 terms for AMX. Operands A are k and the transposed v. Operands B are q and the weights p. */
typedef struct attn__flash_tiles {
    attn__bf16x3_side q, k, v, p[2];
} attn__flash_tiles;

typedef struct attn__flash_scratch {
    float *q;       /* [subtile][channels][width]: q times scale * log2(e); unscaled for pairs */
    float *o;       /* [subtile][values][width] */
    float *s;       /* [key_block][width]: scores, then weights */
    float *other_s; /* on AMX: scores of the other of two subtiles */
    float *top;     /* [width]: largest score of each lane */
    float *extra;   /* [key_block][width]: bias, mask, or terms of another table */
    float *k, *v;   /* panels. k: [key_block][ldk]; v: groups of the tile kernel, [values / group][keys][group], in
                     * pairs [key_block][ldv] */
    attn__flash_pairs pairs;
    attn__flash_tiles tiles;
    /* If values are not finite: `alive`, with the shape of s, marks attended pairs. `clean` is the panel of values with
     * zeros. `bad`, [group][key_block], lists the nbad[group] keys with such numbers in a group of channels. */
    uint8_t *alive;
    uint8_t *fades; /* with mask_fill: see attn__finite_fades */
    float *clean;
    int64_t *bad, *nbad;
    int64_t *at[ATTN__OPERANDS]; /* offsets of the rows of each operand: of the item's queries or the block's keys */
    /* Arrays of the item's queries. */
    attn__visible_rows see;
    attn__tile_rows rows;
    attn__flash_span *span; /* the range of keys of each subtile */
    /* Arrays of the block's keys. */
    attn__tile_keys keys;
    attn__flash_table_memory table[ATTN_MAX_RELATIVE];
} attn__flash_scratch;

/* A part of the item's queries. It is at most as wide as the register tile. */
typedef struct attn__flash_subtile {
    int64_t index, lane, width; /* `lane`: first lane; `width`: number of lanes with padding */
    int64_t lanes;              /* number of lanes without padding */
} attn__flash_subtile;

/* A softmax step of a subtile on AMX that is not finished. */
typedef struct attn__flash_pending {
    bool any, changed; /* a step is pending; before it, earlier sums must be multiplied by t->s.rows.shrink */
    int64_t keys;
    int tiles; /* index into t->s.tiles.p */
    attn__flash_subtile sub;
    attn__bf16x3_softmax softmax;
} attn__flash_pending;

typedef struct attn__flash_item {
    const attn__canonical *canonical;
    const attn__flash *flash;
    const attn__execution *arrays;
    const attn__canonical *whole; /* the problem with all packed sequences */
    int32_t *chosen; /* backward pass of a hardmax: [queries of `whole`], gets the key of each query, or -1 */
    attn__flash_scratch s;
    int64_t batch;
    int64_t first, count, padded; /* first query; number of queries, exact and rounded up to whole vectors */
    int64_t subtiles;
    bool fills_nonfinite;       /* a value with NaN or infinity may have been added with the weight of a mask_fill */
    bool fades;                 /* t->s.fades is known, and some query fades */
    bool q_ready;               /* t->s.q has the item's queries */
    bool q_finite;              /* all queries are finite, so that they could be split into bf16 terms */
    int64_t key_begin, key_end; /* all queries of the item mask the keys outside of [key_begin, key_end) */
    int64_t next_batch, next_first; /* the probable next item of this thread; next_batch < 0 if there is none */
    attn__prefetch prefetch;
    /* On AMX, two steps are pending: `scored` waits for its exponentials, and `weighed` waits for the product of its
     * weights and values. */
    attn__flash_pending scored, weighed;
} attn__flash_item;

typedef struct attn__flash_keys {
    int64_t at, keys;
    int64_t packed; /* number of keys in the panels; only the first `keys` are used */
    bool amx;
    const float *k; /* the panel of keys, or the caller's array */
    int64_t ldk;
    bool careful; /* products must skip masked pairs, because 0 * NaN would be NaN: a value of a key that may be
                   * masked, or a table of values, is not finite */
} attn__flash_keys;

/* Reports whether some pair may have no weight, because of bias, dropout or masks. */
static inline bool attn__flash_may_hide(const attn__canonical *canonical, const attn__flash *f)
{
    return canonical->has_bias || canonical->has_dropout || attn__visible_masks(&f->tiles.visible);
}

/* Returns the parts that hide keys of the block from the subtile. */
static inline unsigned attn__flash_hidden(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    attn__visible_tile tile = {&t->s.see, sub.lane, sub.lanes, &t->s.keys.see, 0, b->keys};
    return attn__visible_of(&tile, &t->s.span[sub.index].limits);
}

/* Returns the subtile's scores in t->s.s as a tile of block/tile.h (flash.c). */
attn__tile attn__flash_tile(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub);

/* Packs the item's queries as tiles. This and all functions below are in flash_amx.c. */
void attn__flash_amx_queries(attn__flash_item *t);
/* Packs keys and values as tiles and sets b->amx. Returns whether the values are finite. */
bool attn__flash_amx_panels(attn__flash_item *t, attn__flash_keys *b);
/* Computes the scores in t->s.s. */
void attn__flash_amx_score(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub);
/* Runs a subtile with a block of keys. The product of the weights and values is left pending. */
void attn__flash_amx_see(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub);
/* Runs the pending products. It must be called before the panels change. */
void attn__flash_amx_end(attn__flash_item *t);

#endif
