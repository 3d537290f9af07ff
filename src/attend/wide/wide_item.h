/* SPDX-License-Identifier: MIT
 *
 * wide_item.h - the state of one work item over wide heads, shared by the files of its forward pass.
 */
#ifndef ATTN_ATTEND_WIDE_ITEM_H
#define ATTN_ATTEND_WIDE_ITEM_H

#include "attend/wide/wide_stream.h"

typedef struct attn__wide_item {
    attn__flash_item t;
    const attn__wide *wide;
    attn__wide_operand q, k, v, o;
    float *s;           /* scores, then weights, of all subtiles: [subtile][key_block][width] */
    uint8_t *hidden;    /* the same */
    attn__parts_side p; /* weights as A, of all subtiles */
    float *sums;        /* [query_block][values] where the output cannot hold them */
    int64_t *sums_at;
    float *factor, *was; /* of the output's rows */
    int64_t *table;      /* offsets of a chunk's channels */
    attn__ahead ahead;
    attn__wide_stream stream;
    bool weights_finite; /* those of the stream */
} attn__wide_item;

static inline int64_t attn__wide_whole_lanes(const attn__flash *f, int64_t n)
{
    return (n + f->tile->lanes - 1) / f->tile->lanes * f->tile->lanes;
}

/* Points the scratch scores at the subtile; b->packed is their number of rows, a multiple of 16 on AMX. */
static inline void attn__wide_aim(attn__wide_item *x, const attn__flash_keys *b, attn__flash_subtile sub)
{
    x->t.s.s = x->s + sub.lane * b->packed;
    x->t.s.hidden = x->hidden + sub.lane * b->packed;
}

static inline bool attn__wide_sees(const attn__wide_item *x, const attn__flash_keys *b, int64_t i)
{
    const attn__flash_span *span = &x->t.s.span[i];
    return b->at < span->end && b->at + b->keys > span->begin;
}

/* Prefetches, in portions, what follows channels [.., next) of the scores. */
void attn__wide_look_ahead(attn__wide_item *x, const attn__flash_keys *b, int64_t next);

/* On AMX in bf16.  Scores of a chunk; */
void attn__wide_score_parts(attn__wide_item *x, const attn__flash_keys *b, int64_t first, int64_t n);
/* weights of a subtile to tiles; */
void attn__wide_split_weights(attn__wide_item *x, const attn__flash_keys *b, attn__flash_subtile sub);
/* packs a chunk of values as tiles or as a panel, sets b->parts and b->careful; */
void attn__wide_load_values(attn__wide_item *x, attn__flash_keys *b, int64_t first, int64_t n);
/* O[queries, chunk] = P V. */
void attn__wide_multiply_parts(attn__wide_item *x, const attn__flash_keys *b, attn__flash_subtile sub, int64_t n);

/* On AMX in f32 (wide_stream.h): a work item and its block of keys; */
typedef struct attn__wide_looking {
    attn__wide_item *x;
    attn__flash_keys *b;
} attn__wide_looking;
/* scores, or values (false if nothing was done).  `plain` computes chunks that bf16 terms cannot hold; its argument is
 * an attn__wide_looking. */
void attn__wide_score_in_stream(attn__wide_item *x, attn__flash_keys *b, attn__wide_plain *plain);
bool attn__wide_add_values_in_stream(attn__wide_item *x, attn__flash_keys *b, attn__wide_plain *plain);

#endif
