/* SPDX-License-Identifier: MIT
 *
 * flash_backward.h - flash attention's backward pass: its plan, the memory of one thread, the state of a run.
 *
 * One tile is `tile_q` queries by a strip of at most `strip` keys; keys are the lanes.  Five products:
 *
 *     S[q,k]   = Q . K^T          A = rows of Q,      B = K^T (packed, times scale and log2 e)
 *     dP[q,k]  = dO . V^T         A = rows of dO,     B = V^T (packed)
 *     dV[k,v] += P^T . dO         A = P read across,  B = rows of dO
 *     dK[k,d] += dS^T . Q         A = dS read across, B = rows of Q
 *     dQ[q,d] += dS . K           A = dS,             B = rows of K
 *
 * A block of keys (several strips) is packed once.  Its dK and dV stay in cache while all queries of the run pass by.
 * dQ is summed block by block, in a fixed order.
 *
 * Loop orders (the number of threads changes no bit):
 *   waves     batch items are independent, and each is divided into `waves` chunks of keys and of queries.  In
 *             step t, chunk w of the keys meets chunk (w + t) mod waves of the queries: no two cells of a step
 *             share a gradient, so that they run in parallel and add directly to the outputs.  waves = 1 is one
 *             item from start to end.
 *   two passes for bf16, whose outputs cannot hold partial sums, where the items do not keep all threads busy:
 *             chunks of keys against all queries (dK, dV, dbias), then chunks of queries against all keys (dQ).
 * BATCH dims over which a requested gradient is broadcast run in sequence inside a cell.
 *
 * With AVX-512 BF16 the operands of a bf16 problem are pairs of bf16 numbers, P and dS rounded to them.  Tiles with
 * infinity or NaN use the products above.
 *
 * On AMX (kernels/bf16x3) the operands are tiles of bf16 terms, and the products for the keys are transposed,
 *
 *     dV^T[v,k] += dO^T . P       A = dO^T (packed),  B = P, converted in place
 *     dK^T[d,k] += Q^T . dS       A = Q^T (packed),   B = dS
 *
 * so that P and dS need no transpose.  The vector units compute P during the product dP, and dS during dV.  Keys and
 * queries are packed directly from the caller's arrays.  Strips with numbers that bf16 terms cannot hold use the vector
 * products above.
 */
#ifndef ATTN_ATTEND_FLASH_BACKWARD_H
#define ATTN_ATTEND_FLASH_BACKWARD_H

#include "base/arena.h"
#include "attend/block/visible.h"
#include "attend/block/prefetch.h"
#include "attend/block/rows.h"
#include "attend/block/gradient_sums.h"
#include "attend/plan/solver.h"
#include "attend/solve/flash_tables.h"
#include "base/context.h"
#include "kernels/softmax_backward/softmax_backward.h"
#include "kernels/online_softmax/online_softmax.h"
#include "kernels/bf16x3/bf16x3.h"
#include "kernels/gemm_tile/gemm_tile.h"
#include "kernels/gemm_tile/gemm_tile_bf16.h"

/* Prefetching: for tiles of queries and for blocks of keys, four operands each. */
enum {
    ATTN__FLASH_BACKWARD_TILES,
    ATTN__FLASH_BACKWARD_BLOCKS,
    ATTN__FLASH_BACKWARD_PREFETCHES,
    ATTN__FLASH_BACKWARD_STREAMS = 4
};

/* Relative tables.  A tile of queries meets a block of keys at relative positions d = j - i + offset, which are close
 * together.  For each table T of queries
 *
 *     X[q,d] = Q . T^T          A = rows of Q,  B = T^T;  S[q,k] starts as X[q, d(q,k)]
 *     D[q,d] = sum of dS[q,k]   over the keys with d(q,k) = d
 *     dQ[q,c] += D . T          A = D,              B = rows of T
 *     dT[d,c] += D^T . Q        A = D read across,  B = rows of Q
 *
 * and for one of values X = dO . T^T is where dP starts, D has the sums of P, and dT += D^T . dO.  With one KEY axis a
 * row of X or D and one of S differ by a shift alone.  dT is summed over one item in f32, over items in slots. */
typedef struct attn__flash_backward_plan {
    const attn__gemm_tile_kernel *tile;
    const attn__softmax_backward_kernel *backward;
    const attn__online_softmax_kernel *lanes;
    const attn__bf16x3_kernel *amx;           /* products on AMX; NULL: by `tile` */
    int terms;                                /* number of bf16 terms per number on AMX */
    const attn__gemm_tile_bf16_kernel *pairs; /* products of bf16 pairs; NULL: bf16 becomes f32 */
    int64_t row_step;  /* the products of a strip begin at a row of the tile that is a multiple of this */
    float score_scale; /* scale * log2 e; K^T is multiplied by it */
    int64_t nq, nk, d, dv;
    int64_t dp, dvp;       /* d and dv, rounded up to the lanes */
    int64_t ldk, ldv;      /* row strides in scratch memory: of q, k, dq and dk; of dout, v and dv */
    int64_t tile_q, strip; /* queries and keys of a tile */
    int64_t block_k;       /* keys of a block: a multiple of the strip */
    int64_t ld_keys;       /* with `amx`: the row stride of dK^T and dV^T */
    int64_t chunk_q, chunk_k, waves;
    int64_t chunks_q, chunks_k; /* the numbers of chunks of the two passes */
    bool two_pass;
    attn__batch_split split;
    int64_t items, shared; /* independent batch items; items that one cell runs in sequence */
    unsigned want;
    attn__visible visible;
    bool bf16, has_bias;
    float softcap;          /* the softcap times log2 e */
    bool resident_q;        /* scratch memory holds dQ of a whole chunk of queries */
    bool store_q, store_kv; /* each element belongs to one cell of a step: the first step stores instead of adding */
    bool clears;            /* a gradient is set to zero first */
    size_t thread_bytes;
    const int64_t *channel[ATTN__OPERANDS]; /* offsets of an operand's channels; NULL: they are adjacent */
    attn__flash_tables tables;
} attn__flash_backward_plan;

/* AMX operands: keys, packed once per block; queries, packed once per tile; P and dS of the tile
 * (kernels/bf16x3/bf16x3_backward.h). */
typedef struct attn__flash_backward_amx {
    attn__bf16x3_side kt, vt, k;                      /* operands B of the products */
    attn__bf16x3_side q, dout, q_across, dout_across; /* operands A of the products */
    attn__bf16x3_side p, across, along;
    int64_t *row; /* [block_k or tile_q] row offsets */
    float *ones;  /* [ld_keys] factors of 1 */
} attn__flash_backward_amx;

/* Operands in pairs: of the block's keys, of the tile's queries, and P and dS of a strip. */
typedef struct attn__flash_backward_pairs {
    uint32_t *kt, *vt;            /* pairs of channels, transposed: [strips][channels / 2][strip] */
    uint32_t *k;                  /* pairs of keys: [block_k / 2][ldk] */
    uint32_t *q, *dout;           /* pairs of channels: [tile_q][channels / 2, in whole vectors] */
    uint32_t *q_rows, *dout_rows; /* pairs of queries: [tile_q / 2][ldk or ldv] */
    uint32_t *across;             /* P, then dS, in pairs of queries: [tile_q / 2][strip] */
    uint16_t *along;              /* dS in pairs of keys: [tile_q][strip] */
} attn__flash_backward_pairs;

/* A block of keys. */
typedef struct attn__flash_backward_keys {
    float *kt, *vt;           /* K^T and V^T: [strips][d][strip]; with `amx` or `pairs`, one strip */
    float *k, *v;             /* rows: [block_k][ldk], [block_k][ldv] */
    float *dk, *dv;           /* the shapes of k and v; with `amx`, [dp][ld_keys] and [dvp][ld_keys] */
    float *dk_rows, *dv_rows; /* the shapes of k and v */
} attn__flash_backward_keys;

/* The scratch memory of one thread: float arrays first, everything aligned to 64 bytes. */
typedef struct attn__flash_backward_scratch {
    attn__flash_backward_keys keys;
    float *q, *dout;           /* rows: [tile_q][ldk], [tile_q][ldv] */
    float *row;                /* [dvp]: one row of o */
    float *dq;                 /* [chunk_q or tile_q][ldk] */
    float *s, *ds;             /* [tile_q][strip] */
    float *bias;               /* [tile_q][strip] */
    float *dbias;              /* with a softcap [tile_q][strip]; otherwise the same memory as ds */
    float *lse, *delta, *fill; /* [tile_q]; fill: the logarithm of a masked key's weight */
    float *kept;               /* [chunk_q] delta of each tile for which `known` is 1 */
    uint8_t *known;            /* whether `kept` has the tile's delta; used only if the run's queries are one chunk */
    uint8_t *mask, *alive;     /* [tile_q][strip] */
    attn__visible_rows rows;
    int32_t *from, *to; /* [tile_q] the range of keys of each row; all keys where there is no range */
    attn__visible_keys keys_of_block;
    uint64_t *drop_key;            /* [tile_q] dropout's key of each row */
    uint32_t *drop_column;         /* [block_k] dropout's number of each key */
    int64_t *at[ATTN__OPERANDS];   /* offsets of the tile's queries [tile_q] or of the block's keys [block_k] */
    int64_t *bias_key, *dbias_key; /* [block_k] what each key adds to the offset of a bias */
    int64_t *prefetch_at[ATTN__FLASH_BACKWARD_PREFETCHES][ATTN__FLASH_BACKWARD_STREAMS];
    attn__flash_backward_amx amx;
    attn__flash_backward_pairs pairs;
    attn__flash_table_memory table[ATTN_MAX_RELATIVE];
} attn__flash_backward_scratch;

/* The block's keys and values, or the tile's queries and dout: whether they are finite; packed for AMX, or as pairs;
 * and, as those need none, whether f32 rows of them were made. */
typedef struct attn__flash_backward_side {
    bool finite, split, copied;
} attn__flash_backward_side;

/* One run over a range of queries and keys of one batch item: the state of its steps. */
typedef struct attn__flash_backward_run {
    const attn__canonical *canonical;
    const attn__flash_backward_plan *plan;
    const attn_arrays *arrays;
    int64_t batch; /* the index over the BATCH dims */
    attn__flash_backward_scratch m;
    unsigned want;
    int64_t q_begin, q_end, k_begin, k_end;
    int64_t block, block_n; /* first key and number of keys of the packed block */
    int64_t tile, tile_n;   /* first query and number of queries of the packed tile */
    float *dq;              /* dQ of the tile */
    bool keeps;             /* whether `kept` is used */
    attn__flash_backward_side keys, queries;
    bool plain; /* the strip has no mask, softcap, bias or dropout */
    bool first; /* nothing has been added to the gradients yet */
    attn__prefetch prefetch[ATTN__FLASH_BACKWARD_PREFETCHES];
    /* The cell that this thread will probably run next. */
    bool has_next;
    int64_t next_batch, next_q, next_k; /* the batch index, first query and first key of the next cell */
} attn__flash_backward_run;

/* Whether an operand has rows of keys; else of queries. */
static inline bool attn__flash_backward_has_keys(attn__operand op)
{
    return !(attn__operand_table[op].roles & ATTN__IN_QUERY);
}

/* The rows of an operand with channels, of the tile's queries or of the block's keys, which run->m.at has. */
static inline attn__rows attn__flash_backward_rows(const attn__flash_backward_run *run, attn__operand op)
{
    return (attn__rows){.data = attn__operand_array(run->arrays, op),
                        .dtype = run->canonical->problem.dtype,
                        .at = run->m.at[op],
                        .rows = attn__flash_backward_has_keys(op) ? run->block_n : run->tile_n,
                        .channel = run->plan->channel[op],
                        .n = attn__channels_of(run->canonical, op)->size};
}

/* Finds where rows [first, first + n) of an operand begin. */
static inline void attn__flash_backward_find(const attn__flash_backward_run *run, attn__operand op, int64_t first,
                                             int64_t n)
{
    attn__operand_offsets(run->canonical, op, run->batch, first, n, run->m.at[op]);
}

/* flash_backward_tile.c */
/* Decides whether products run on AMX or on pairs, and then sets tiles, strips and blocks; */
void attn__flash_backward_tile_choose(attn__flash_backward_plan *plan, const attn__canonical *canonical);
/* their memory. */
void attn__flash_backward_tile_place(const attn__flash_backward_plan *plan, attn__arena *arena,
                                     attn__flash_backward_scratch *scratch);
/* Finds what limits the keys of each row of the tile; false if none of them attends any key of the block. */
bool attn__flash_backward_tile_start(attn__flash_backward_run *run);
/* Packs the block's keys and clears their gradients; packs the tile's queries; runs the one against the other. */
void attn__flash_backward_tile_keys(attn__flash_backward_run *run);
void attn__flash_backward_tile_queries(attn__flash_backward_run *run);
void attn__flash_backward_tile_run(attn__flash_backward_run *run);
/* On AMX: stores dK and dV of the block, if all `size` keys were seen and none must be added; else false, and transposes
 * those of the first n keys into rows. */
bool attn__flash_backward_tile_store(const attn__flash_backward_run *run, int64_t n, int64_t size);

#endif
