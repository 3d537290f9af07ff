/* SPDX-License-Identifier: MIT
 *
 * flash_backward.h - the backward pass of flash attention: its plan, the memory of a thread, and the state of a run.
 *
 * A tile is `tile_q` queries by a strip of at most `strip` keys. Keys are the lanes.  A tile has five products:
 *
 *     S[q,k]   = Q . K^T          A = rows of Q,      B = K^T (packed, times scale and log2 e)
 *     dP[q,k]  = dO . V^T         A = rows of dO,     B = V^T (packed)
 *     dV[k,v] += P^T . dO         A = P read across,  B = rows of dO
 *     dK[k,d] += dS^T . Q         A = dS read across, B = rows of Q
 *     dQ[q,d] += dS . K           A = dS,             B = rows of K
 *
 * A block of keys (several strips) is packed once.  Its dK and dV stay in the cache during all queries of the run. dQ
 * is summed block by block, in a fixed order.
 *
 * There are two loop orders. In both, the results do not depend on the number of threads.
 *     waves     Batch items are independent, and each is divided into `waves` chunks of keys and of queries.  In
 *               step t, chunk w of the keys meets chunk (w + t) mod waves of the queries. Two cells of a step never
 *               share a gradient, so they run in parallel and add directly to the outputs.  With waves = 1, an item
 *               is one cell.
 *     two passes  These are for bf16, whose outputs cannot hold partial sums, if the items do not keep all threads
 *               busy.  The first pass runs chunks of keys with all queries (dK, dV, dbias). The second pass runs
 *               chunks of queries with all keys (dQ).
 * BATCH dims over which a requested gradient is broadcast run in sequence inside a cell.
 *
 * With AVX-512 BF16 the operands of a bf16 problem are pairs of bf16 numbers, and P and dS are rounded to bf16. Tiles
 * with infinity or NaN use the products above.
 *
 * On AMX (kernels/bf16x3) the operands are tiles of bf16 terms. The products for the keys are transposed,
 *
 *     dV^T[v,k] += dO^T . P       A = dO^T (packed),  B = P, converted in place
 *     dK^T[d,k] += Q^T . dS       A = Q^T (packed),   B = dS
 *
 * so that P and dS need no transpose.  The vector units compute P while AMX computes dP, and dS while AMX computes dV.
 * Keys and queries are packed directly from the caller's arrays.  Strips with numbers that bf16 terms cannot hold use
 * the vector products above.
 */
#ifndef ATTN_ATTEND_FLASH_BACKWARD_H
#define ATTN_ATTEND_FLASH_BACKWARD_H

#include "base/arena.h"
#include "attend/block/tile.h"
#include "attend/block/prefetch.h"
#include "attend/block/rows.h"
#include "attend/block/gradient_sums.h"
#include "attend/plan/solver.h"
#include "attend/solve/flash_tables.h"
#include "base/context.h"
#include "kernels/softmax_backward/softmax_backward.h"
#include "kernels/online_softmax/online_softmax.h"
#include "kernels/bf16x3/bf16x3.h"
#include "kernels/bf16x3/bf16x3_backward.h"
#include "kernels/gemm_tile/gemm_tile.h"
#include "kernels/gemm_tile/gemm_tile_bf16.h"

/* The two prefetch lists, for tiles of queries and for blocks of keys. Each has four operands. */
enum {
    ATTN__FLASH_BACKWARD_TILES,
    ATTN__FLASH_BACKWARD_BLOCKS,
    ATTN__FLASH_BACKWARD_PREFETCHES,
    ATTN__FLASH_BACKWARD_STREAMS = 4
};

/* Relative tables: the distances d = j - i + offset between a tile of queries and a block of keys are a short range.
 * Each table T of queries has the products
 *
 *     X[q,d] = Q . T^T          A = rows of Q,  B = T^T;  S[q,k] starts as X[q, d(q,k)]
 *     D[q,d] = sum of dS[q,k]   over the keys with d(q,k) = d
 *     dQ[q,c] += D . T          A = D,              B = rows of T
 *     dT[d,c] += D^T . Q        A = D read across,  B = rows of Q
 *
 * For a table of values, dP starts as X = dO . T^T, D has the sums of P, and dT += D^T . dO.  With one KEY axis, a row
 * of X or D is a shifted row of S.  dT is summed over one item in f32, and over items in slots. */
typedef struct attn__flash_backward_plan {
    const struct attn__flash_backward_products *products;
    attn__isa isa; /* of the products */
    const attn__gemm_tile_kernel *tile;
    const attn__bf16x3_kernel *amx;
    int terms; /* number of bf16 terms per number on AMX */
    const attn__gemm_tile_bf16_kernel *pairs;
    float score_scale; /* scale * log2(e), a factor of K^T */
    int64_t nq, nk, d, dv;
    int64_t dp, dvp;       /* d and dv rounded up to the lanes */
    int64_t ldk, ldv;      /* row strides in scratch memory: ldk for q, k, dq, dk; ldv for dout, v, dv */
    int64_t tile_q, strip; /* queries and keys of a tile */
    int64_t block_k;       /* keys of a block, a multiple of `strip` */
    int64_t ld_keys;       /* row stride of dK^T and dV^T on AMX */
    int64_t chunk_q, chunk_k, waves;
    int64_t chunks_q, chunks_k; /* numbers of chunks, if there are two passes */
    bool two_pass;
    attn__batch_split split;
    int64_t items, shared; /* number of independent batch items; BATCH indices of an item */
    unsigned want;
    attn__tile_plan tiles;
    bool bf16;
    bool resident_q;        /* scratch memory has room for dQ of a whole chunk of queries */
    bool store_q, store_kv; /* each element belongs to one cell per step, so that the first step overwrites it */
    bool clears;            /* some gradients must be cleared before cells add to them */
    size_t thread_bytes;
    const int64_t *channel[ATTN__OPERANDS]; /* offsets of the channels; NULL: adjacent */
    attn__flash_tables tables;
} attn__flash_backward_plan;

/* AMX operands. Keys are packed once per block, queries once per tile, and P and dS once per strip
 * (kernels/bf16x3/bf16x3_backward.h). */
typedef struct attn__flash_backward_amx {
    attn__bf16x3_side kt, vt, k;                      /* operands B of the products */
    attn__bf16x3_side q, dout, q_across, dout_across; /* operands A of the products */
    attn__bf16x3_side p, across, along;
    int64_t *row; /* [block_k or tile_q]: offset of each row */
    float *ones;  /* [ld_keys]: the number 1, or a scale */
} attn__flash_backward_amx;

/* Operands as pairs of bf16 numbers: keys of a block, queries of a tile, P and dS of a strip. */
typedef struct attn__flash_backward_pairs {
    uint32_t *kt, *vt;            /* pairs of channels, transposed: [strips][channels / 2][strip] */
    uint32_t *k;                  /* pairs of keys: [block_k / 2][ldk] */
    uint32_t *q, *dout;           /* pairs of channels: [tile_q][channels / 2, in whole vectors] */
    uint32_t *q_rows, *dout_rows; /* pairs of queries: [tile_q / 2][ldk or ldv] */
    uint32_t *across;             /* P, then dS, in pairs of queries: [tile_q / 2][strip] */
    uint16_t *along;              /* dS in pairs of keys: [tile_q][strip] */
} attn__flash_backward_pairs;

/* The memory for a block of keys. */
typedef struct attn__flash_backward_keys {
    float *kt, *vt;           /* K^T and V^T: [strips][d][strip]; if products->apart only one strip */
    float *k, *v;             /* k: [block_k][ldk]; v: [block_k][ldv] */
    float *dk, *dv;           /* shaped like k and v; if products->transposed, [dp][ld_keys] and [dvp][ld_keys] */
    float *dk_rows, *dv_rows; /* gradients as rows, shaped like k and v */
} attn__flash_backward_keys;

/* The scratch memory of one thread. All arrays are aligned to 64 bytes. */
typedef struct attn__flash_backward_scratch {
    attn__flash_backward_keys keys;
    float *q, *dout;        /* q: [tile_q][ldk]; dout: [tile_q][ldv] */
    float *row;             /* [dvp]: one row of o */
    float *dq;              /* [chunk_q or tile_q][ldk] */
    float *s, *ds;          /* [tile_q][strip] */
    float *bias;            /* [tile_q][strip] */
    float *dbias;           /* [tile_q][strip] with a softcap, otherwise the memory of ds */
    float *kept;            /* [chunk_q]: delta of all tiles for which `known` is set */
    uint8_t *known;         /* per tile: 1 if `kept` has its delta; only for runs with all queries in one chunk */
    uint8_t *mask, *alive;  /* [tile_q][strip] */
    attn__visible_rows see; /* limits of the tile's queries */
    attn__tile_rows rows;
    attn__tile_keys keys_of_block;
    int64_t *at[ATTN__OPERANDS]; /* offsets of the tile's queries [tile_q] or the block's keys [block_k] */
    int64_t *prefetch_at[ATTN__FLASH_BACKWARD_PREFETCHES][ATTN__FLASH_BACKWARD_STREAMS];
    attn__flash_backward_amx amx;
    attn__flash_backward_pairs pairs;
    attn__flash_table_memory table[ATTN_MAX_RELATIVE];
} attn__flash_backward_scratch;

/* The state of the block's keys and values, or of the tile's queries and dout. `finite`: all numbers are finite.
 * `split`: AMX can use the packed numbers. `copied`: f32 rows exist, which AMX and pairs mostly do not need. */
typedef struct attn__flash_backward_side {
    bool finite, split, copied;
} attn__flash_backward_side;

/* The state of a run over a range of queries and keys of one batch item. */
typedef struct attn__flash_backward_run {
    const attn__canonical *canonical;
    const attn__flash_backward_plan *plan;
    const attn__execution *arrays;
    int64_t batch; /* linear index over the BATCH dims */
    attn__flash_backward_scratch m;
    unsigned want;
    int64_t q_begin, q_end, k_begin, k_end;
    int64_t block, block_n; /* first key and number of keys of the packed block */
    int64_t tile, tile_n;   /* first query and number of queries of the packed tile */
    float *dq;              /* dQ of the tile */
    bool keeps;             /* `kept` and `known` are used */
    attn__flash_backward_side keys, queries;
    bool plain; /* the strip has no mask, softcap, bias or dropout */
    bool first; /* no earlier step has added to the gradients */
    attn__prefetch prefetch[ATTN__FLASH_BACKWARD_PREFETCHES];
    /* the next cell of this thread is probably known */
    bool has_next;
    int64_t next_batch, next_q, next_k; /* batch index, first query and first key of the next cell */
} attn__flash_backward_run;

/* Reports whether the rows of an operand are keys. The rows of other operands are queries. */
static inline bool attn__flash_backward_has_keys(attn__operand op)
{
    return !(attn__operand_table[op].roles & ATTN__IN_QUERY);
}

/* Returns the rows of an operand for the tile's queries or the block's keys. run->m.at must have the rows' offsets. */
static inline attn__rows attn__flash_backward_rows(const attn__flash_backward_run *run, attn__operand op)
{
    return (attn__rows){.data = attn__operand_array(run->arrays, op),
                        .dtype = run->canonical->problem.dtype,
                        .at = run->m.at[op],
                        .rows = attn__flash_backward_has_keys(op) ? run->block_n : run->tile_n,
                        .channel = run->plan->channel[op],
                        .n = attn__channels_of(run->canonical, op)->size};
}

static inline void attn__flash_backward_find(const attn__flash_backward_run *run, attn__operand op, int64_t first,
                                             int64_t n)
{
    attn__operand_offsets(run->canonical, op, run->batch, first, n, run->m.at[op]);
}

/* Transposes rows [first, first + n) of an operand, and multiplies them by `factor`: [channels][strip]. */
static inline void attn__flash_backward_transpose(const attn__flash_backward_run *run, attn__operand op, int64_t first,
                                                  int64_t n, float factor, float *to)
{
    attn__rows x = attn__flash_backward_rows(run, op);
    attn__lane_view view = {(void *)(uintptr_t)x.data, x.dtype, x.at + first, x.channel, x.n, n};
    run->plan->tiles.lanes->gather(&view, to, run->plan->strip, factor);
}

/* A strip of keys and the part of the tile that attends it. */
typedef struct attn__flash_backward_strip {
    attn__flash_backward_run *run;
    attn__tile t;                 /* scores between the products */
    attn__bf16x3_weights weights; /* arguments of the softmax step on AMX */
} attn__flash_backward_strip;

/* Operands of a product with a row of results per key: dV += P^T dO or dK += dS^T Q. */
typedef struct attn__flash_backward_key_product {
    unsigned want;
    const float *weights;         /* P or dS of the strip, [rows][strip] */
    const float *rows;            /* dout or q of the tile */
    float *sums;                  /* dV or dK of the block; transposed if products->transposed */
    int64_t ld, channels, padded; /* row stride of `rows` and `sums`; channels, exact and in whole vectors */
} attn__flash_backward_key_product;

static inline attn__flash_backward_key_product attn__flash_backward_key_product_of(const attn__flash_backward_strip *x,
                                                                                   bool value)
{
    const attn__flash_backward_plan *p = x->run->plan;
    const attn__flash_backward_scratch *m = &x->run->m;
    if (value)
        return (attn__flash_backward_key_product){
            x->run->want & ATTN_WANT_DV, x->t.s, m->dout, m->keys.dv, p->ldv, p->dv, p->dvp};
    return (attn__flash_backward_key_product){
        x->run->want & ATTN_WANT_DK, x->t.ds, m->q, m->keys.dk, p->ldk, p->d, p->dp};
}

/* One way to compute the products: on vectors, on pairs of bf16 numbers, or on AMX. A NULL function does nothing. */
typedef struct attn__flash_backward_products {
    /* Reports whether the plan's products run this way. May set the sizes of tiles, strips and blocks. */
    bool (*choose)(attn__flash_backward_plan *plan, const attn__canonical *canonical);
    /* Reserves the memory for operands. */
    void (*place)(const attn__flash_backward_plan *plan, attn__arena *arena, attn__flash_backward_scratch *scratch);
    /* Run before the first and after the last product of a cell. */
    void (*begin)(const attn__flash_backward_plan *plan), (*end)(const attn__flash_backward_plan *plan);
    /* Packs the block's keys and values, or the tile's queries and dout if `keys` is false. */
    void (*pack)(attn__flash_backward_run *run, bool keys);
    /* Runs a strip. Returns the gradients that it left out, because its operands cannot hold the numbers. */
    unsigned (*run)(attn__flash_backward_strip *strip);
    /* Adds what is left after the last strip of a tile. */
    void (*finish)(const attn__flash_backward_run *run);
    /* Stores dK and dV and returns true if all `size` keys of the block were used, and nothing must be added. Otherwise,
     * converts the gradients of the first n keys to rows and returns false. */
    bool (*store)(const attn__flash_backward_run *run, int64_t n, int64_t size);
    int64_t row_step; /* a strip's products begin at a row of the tile that is a multiple of row_step */
    bool apart;       /* operands are not f32; f32 copies are only for strips that `run` leaves out */
    bool transposed;  /* the sums dK and dV are transposed */
    bool prefetches;  /* the next rows are prefetched; on AMX this would delay the loads of the products */
} attn__flash_backward_products;

extern const attn__flash_backward_products attn__flash_backward_by_vectors, attn__flash_backward_by_pairs,
    attn__flash_backward_by_amx;

/* Copies the block's keys and values, or the tile's queries and dout, to rows of f32, unless they are copied
 * already. */
void attn__flash_backward_copy(attn__flash_backward_run *run, bool keys);
/* Finds the limits of the tile's keys. Returns false if no row of the tile attends any key of the block. */
bool attn__flash_backward_tile_start(attn__flash_backward_run *run);
void attn__flash_backward_tile_run(attn__flash_backward_run *run);

#endif
