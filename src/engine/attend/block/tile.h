/* SPDX-License-Identifier: MIT
 *
 * tile.h - a tile of scores: some queries and some keys of one head, between the two products of attention.  A solver
 * computes the products.  The functions here find the visible pairs, and assemble the arguments of the kernels
 * online_softmax and softmax_backward: softcap, bias, masks, dropout, log-sum-exp.
 *
 * The forward pass has one query per lane, s[key * ld + query]. The backward pass has one key per lane,
 * s[query * ld + key].  The solver allocates all arrays, and sets the fields of a tile once for several heads.
 */
#ifndef ATTN_ATTEND_TILE_H
#define ATTN_ATTEND_TILE_H

#include "attend/block/dropout.h"
#include "attend/block/scores.h"
#include "attend/block/visible.h"
#include "base/arena.h"

/* What all tiles of a plan have in common. */
typedef struct attn__tile_plan {
    const attn__online_softmax_kernel *lanes;
    const attn__softmax_backward_kernel *backward;
    attn__visible visible;
    bool masks; /* some pair may be masked; only then attn__tile.see and attn__tile_keys.see are used */
    attn__weights_kind kind;
    bool has_bias, has_dropout, wants_dbias;
    float softcap; /* softcap times log2(e); 0: none */
    float fill;    /* score of a masked key times log2(e); -infinity without mask_fill */
    float drop_scale;
    uint32_t drop_below;
} attn__tile_plan;

attn__tile_plan attn__tile_plan_of(const attn__canonical *canonical, attn__isa isa);

/* A block of queries of one or several heads. Arrays by head are [heads][most]. */
typedef struct attn__tile_rows {
    int64_t most;
    int64_t *bias, *dbias;       /* [most]: offsets in the bias and in its gradient, from the head's first element */
    int64_t *bias_at, *dbias_at; /* [heads]: offsets of the head's first element */
    uint64_t *drop;              /* by head: dropout hashes */
    uint32_t *low, *high;        /* by head: halves of the dropout hashes, for one query per lane */
    float *m, *l, *shrink;       /* forward. m, l: by head; shrink: [most] */
    int32_t *chosen;             /* forward, by head, for ATTN__WEIGHTS_LARGEST: the key of the largest score m */
    float *lse, *delta, *fill;   /* backward, by head, see attn__softmax_backward_args */
} attn__tile_rows;

/* A block of keys, which all heads share. */
typedef struct attn__tile_keys {
    attn__visible_keys see;
    int64_t *bias, *dbias; /* offsets in the bias and in its gradient */
    uint32_t *column;      /* dropout column numbers; memory up to a multiple of the lanes is read */
    float sigmoid_bias;    /* b times log2(e); only for sigmoids */
    int64_t first;
} attn__tile_keys;

typedef struct attn__tile {
    const attn__tile_plan *plan;
    const attn__canonical *canonical;
    const attn__execution *arrays;
    const attn__visible_rows *see; /* limits of the rows */
    const attn__tile_rows *rows;
    int64_t row, nrows;
    const attn__tile_keys *keys;
    int64_t key, nkeys;
    int64_t head;             /* index in the rows' arrays by head */
    int64_t ld;               /* row stride of all following arrays */
    float *s, *ds;            /* ds: NULL if it is not requested */
    float *dbias;             /* gradient of the bias if it differs from ds; otherwise NULL */
    float *bias;              /* scratch memory for the bias or the mask */
    const float *bias_there;  /* what `bias` holds, so that heads that share a bias load it once; NULL: nothing */
    float *flags;             /* forward: 0 for pairs that `flagged` parts hide, see attn__visible_hide; or NULL */
    uint8_t *mask;            /* backward: 0 for pairs that `hidden` parts hide */
    uint8_t *alive;           /* marks pairs whose terms count; NULL: the operands are finite */
    const uint8_t *fades;     /* forward, by head: see attn__finite_fades; NULL: unknown */
    unsigned hidden, flagged; /* bits of attn__visible_of */
    bool full;                /* the rows' ranges have all keys of the tile */
} attn__tile;

static inline attn__visible_tile attn__tile_pairs(const attn__tile *t)
{
    return (attn__visible_tile){t->see, t->row, t->nrows, &t->keys->see, t->key, t->nkeys};
}

/* Takes the arrays that the backward pass needs for up to `most` queries of `heads` heads. */
void attn__tile_rows_take(attn__tile_rows *rows, const attn__tile_plan *plan, attn__arena *arena, int64_t heads,
                          int64_t most);
/* Takes the arrays of the forward pass with one query per lane. `most` is a multiple of the lanes. */
void attn__tile_lanes_take(attn__tile_rows *rows, const attn__tile_plan *plan, attn__arena *arena, int64_t heads,
                           int64_t most);
void attn__tile_keys_take(attn__tile_keys *keys, const attn__tile_plan *plan, attn__arena *arena, int64_t most);

/* Queries [first, first + count) of a batch index. `head` is the index of the batch index in the arrays by head. */
typedef struct attn__tile_place {
    const attn__canonical *canonical;
    const attn__execution *arrays;
    int64_t head, batch, first, count;
} attn__tile_place;

/* Finds the offsets of the queries, which are the same for each head. */
void attn__tile_rows_start(const attn__tile_rows *rows, const attn__tile_plan *plan, const attn__tile_place *place);
/* Finds a head's offsets in the bias and in its gradient, and the queries' dropout hashes. */
void attn__tile_rows_head(const attn__tile_rows *rows, const attn__tile_plan *plan, const attn__tile_place *place);
/* Loads a head's log-sum-exps and the weights of masked keys, unless the weights are sigmoids. Subtracts the log-sum-exps' gradient from delta. `see`
 * has the limits of the same queries. */
void attn__tile_rows_lse(const attn__tile_rows *rows, const attn__tile_plan *plan, const attn__tile_place *place,
                         const attn__visible_rows *see);
void attn__tile_keys_start(attn__tile_keys *keys, const attn__tile_plan *plan, const attn__canonical *canonical,
                           int64_t first, int64_t count);

/* Finds which pairs are visible. Sets hidden and full, and t->mask or t->flags if they are not NULL and needed. Returns
 * false if all pairs are masked and have no weight. */
bool attn__tile_sees(attn__tile *t, const attn__visible_span *span);

/* Forward: applies softcap, bias and masks to the scores, and sets t->alive. Returns whether the scores changed. */
bool attn__tile_scores(attn__tile *t);
/* Forward: computes the weights from the scores, the sums m and l, and t->alive. Weights that do not depend on other
 * keys have m = 0 and l = 1. A hardmax has no weights, but rows->chosen. `top`: largest score of each query,
 * or NULL. Returns true if earlier sums must be multiplied by rows->shrink. */
bool attn__tile_softmax(const attn__tile *t, const float *top);

/* The output of a hardmax. `place` has the queries. */
typedef struct attn__tile_chosen {
    const attn__tile_plan *plan;
    attn__tile_place place;
    const float *m;                       /* largest scores; -infinity: no keys; NaN: NaN among the scores */
    const int32_t *chosen;                /* their keys */
    const int64_t *v_channel, *o_channel; /* see attn__rows.channel */
    float *row;                           /* scratch memory for the channels of a value */
} attn__tile_chosen;
/* Stores the values of the chosen keys as output: zeros for queries without keys or whose weight is dropped, and NaN for
 * queries with NaN among their scores. */
void attn__tile_store_chosen(const attn__tile_chosen *t);

/* Backward: computes weights and gradients of scores from the products s and ds. */
void attn__tile_weights(attn__tile *t);
void attn__tile_dbias(const attn__tile *t, bool add);

#endif
