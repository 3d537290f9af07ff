/* SPDX-License-Identifier: MIT
 *
 * wide_head.h - the plan of softmax attention with heads of thousands of channels, as in tied rows of an alignment,
 * where each row makes the head longer.
 *
 * The two products dwarf the softmax.  The weights of a block of queries and a block of keys stay in the cache while
 * channels stream by in chunks:
 *
 *     S^T += K[keys, chunk] Q[chunk, queries]       for each chunk of the CONTRACT channels
 *     P^T  = softmax of S^T, queries in the lanes   (masks, bias and dropout by flash's functions)
 *     O[queries, chunk] = P V[keys, chunk]          for each chunk of the VALUE channels
 *
 * A few hundred keys are one block, and no sum is rescaled; with more keys the output holds running sums.  Packing a
 * chunk into panels absorbs strides and bf16.
 */
#ifndef ATTN_ATTEND_WIDE_HEAD_H
#define ATTN_ATTEND_WIDE_HEAD_H

#include "attend/solve/flash.h"
#include "kernels/softmax_backward/softmax_backward.h"
#include "kernels/additive/additive.h"

enum { ATTN__WIDE_HEAD_CHUNK = 64, ATTN__WIDE_HEAD_AMX_CHUNK = 128 };

/* Runs of adjacent channels inside one operand: a chunk is copied run by run. */
typedef struct attn__wide_head_operand {
    const attn__group *channels; /* NULL: adjacent, all of them */
    size_t stride;               /* of the operand, see ATTN__STRIDE */
    attn_dtype dtype;
    int64_t run; /* adjacent channels; 1: none are */
} attn__wide_head_operand;

attn__wide_head_operand attn__wide_head_operand_of(const attn__group *channels, size_t stride, attn_dtype dtype);
/* Where a channel lies in the row that begins at base. */
const void *attn__wide_head_at(const attn__wide_head_operand *x, const void *base, int64_t channel);

/* Rows of an operand: row i begins at base + at[i]. */
typedef struct attn__wide_head_rows {
    const attn__wide_head_operand *operand;
    const void *base;
    const int64_t *at;
    int64_t rows;
} attn__wide_head_rows;

/* Channels [first, first + n) of them. */
typedef struct attn__wide_head_chunk {
    attn__wide_head_rows of;
    int64_t first, n;
} attn__wide_head_chunk;

/* Where a chunk is packed: rows `ld` numbers apart; `table` has room for n offsets. */
typedef struct attn__wide_head_panel {
    float *data;
    int64_t ld, *table;
} attn__wide_head_panel;

/* The chunk row by row, zeros up to whole lanes.  False if any number is infinite or NaN. */
bool attn__wide_head_copy(const attn__wide_head_chunk *x, const attn__online_softmax_kernel *lanes,
                          const attn__wide_head_panel *to);
/* The chunk transposed, times factor: the rows of `to` are channels. */
void attn__wide_head_gather(const attn__wide_head_chunk *x, const attn__online_softmax_kernel *lanes,
                            const attn__wide_head_panel *to, float factor);

/* The chunk as A's tiles, of one part; `between` is scratch memory. */
void attn__wide_head_split(const attn__wide_head_chunk *x, const attn__flash *flash,
                           const attn__wide_head_panel *between, const attn__bf16x3_side *to);
/* The same as B's tiles, rows along k.  False if any number is infinite or NaN. */
bool attn__wide_head_split_pairs(const attn__wide_head_chunk *x, const attn__flash *flash,
                                 const attn__wide_head_panel *between, const attn__bf16x3_side *to);

/* chunk = (was ? was[row] * chunk : 0) + factor[row] * tile; in bf16, was is NULL or all ones. */
typedef struct attn__wide_head_sum {
    const attn__softmax_backward_kernel *store;
    const attn__additive_kernel *channels;
    const float *was, *factor;
} attn__wide_head_sum;
void attn__wide_head_store(const attn__wide_head_chunk *x, const attn__wide_head_sum *sum, const float *tile,
                           int64_t ld);

/* Adds a chunk to the prefetch list; the runs of one row may lie pages apart. */
void attn__wide_head_prefetch(attn__prefetch *prefetch, const attn__wide_head_chunk *x);

/* tile->run(whole) in portions that fit the first cache, with a prefetch portion after each register tile; number of
 * those portions. */
void attn__wide_head_multiply(const attn__gemm_tile_kernel *tile, const attn__gemm_tile_args *whole,
                              attn__prefetch *prefetch);
int64_t attn__wide_head_portions(const attn__gemm_tile_kernel *tile, int64_t m, int64_t n, int64_t k);

/* Made by plan, read-only afterwards. */
typedef struct attn__wide_head {
    const attn__softmax_backward_kernel *store;
    const attn__additive_kernel *sums;
    int64_t channels, values; /* of a whole head; `flash` has those of a chunk */
    int64_t key_blocks;
    bool private_sums;              /* the output cannot hold partial sums: they are kept in scratch memory */
    const attn__bf16x3_kernel *amx; /* f32 products on AMX (wide_head_stream.h); NULL: none */
    attn__flash *flash;             /* sizes of blocks, axes with limits */
} attn__wide_head;

void attn__wide_head_forward(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                             void *workspace);
/* Bytes of one thread. */
size_t attn__wide_head_bytes(const attn__wide_head *wide_head, const attn__canonical *canonical);

#endif
