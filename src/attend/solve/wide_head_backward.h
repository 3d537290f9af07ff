/* SPDX-License-Identifier: MIT
 *
 * wide_head_backward.h - the backward pass over wide heads: a block of queries against one of keys, in chunks of
 * channels.
 *
 *     S += Q K^T             for each chunk of the CONTRACT channels
 *     dP += dO V^T           for each chunk of the VALUE channels, and delta with it
 *     P, dS                  once, by flash_backward's own functions
 *     dV[keys, chunk] = P^T dO,  dK[keys, chunk] = dS^T Q,  dQ[queries, chunk] = dS K
 *
 * Where the queries and the keys are one block each, every gradient is written once.  Else blocks meet in waves, as in
 * flash_backward.h: in step t, block w of the keys meets block (w + t) mod waves of the queries and adds.
 */
#ifndef ATTN_ATTEND_WIDE_HEAD_BACKWARD_H
#define ATTN_ATTEND_WIDE_HEAD_BACKWARD_H

#include "attend/solve/flash_backward.h"
#include "attend/solve/wide_head_stream.h"

/* Made by plan, read-only afterwards. */
typedef struct attn__wide_head_backward_plan {
    attn__flash_backward_plan back; /* sizes of a tile; its padded channels are those of a chunk */
    const attn__additive_kernel *sums;
    int64_t chunk;
    int64_t waves;
    bool once;                      /* each gradient is written once, not added to */
    bool in_turn;                   /* the blocks of one batch item may write the same elements */
    bool may_hide;                  /* pairs may be masked or dropped */
    const attn__bf16x3_kernel *amx; /* f32 products on AMX (wide_head_stream.h); NULL: none */
} attn__wide_head_backward_plan;

/* The current tile. */
typedef struct attn__wide_head_block {
    attn__flash_backward_run run;
    const attn__wide_head_backward_plan *wide_head;
    attn__wide_head_operand q, k, v, o, dout, dq, dk, dv;
    float *o_rows;       /* [tile_q][chunk] */
    float *ones, *scale; /* a factor for each row of a tile */
    int64_t *table;
    attn__prefetch prefetch;
    attn__wide_head_stream stream;
    float *dots; /* on AMX: 16 partial sums of each query's delta */
} attn__wide_head_block;

/* Points it into `memory` (NULL: only counts); returns the bytes used. */
size_t attn__wide_head_block_place(const attn__wide_head_backward_plan *wide_head, void *memory,
                                   attn__wide_head_block *block);
void attn__wide_head_block_run(attn__wide_head_block *block, int64_t query_block, int64_t key_block);

size_t attn__wide_head_backward_bytes(const attn__wide_head_backward_plan *wide_head, const attn__canonical *canonical);
void attn__wide_head_backward(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                              void *workspace);

#endif
