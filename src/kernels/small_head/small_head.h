/* SPDX-License-Identifier: MIT
 *
 * small_head.h - attention with heads of at most 16 channels, scores, softmax and values in one loop.
 *
 *     o[i] += sum_j 2^(q[i] . k[j] - m[i]) v[j]     l[i] += sum_j 2^(q[i] . k[j] - m[i])
 *
 * Each lane is a query: a few vectors of queries with all their channels stay in registers while keys pass by.
 * An exponential costs as much here as a product, so that the online softmax avoids work:
 *
 * The reference m is a whole number.  Subtracting it from a score is exact and happens in the rounding that the
 * exponential does anyway.  The bound sum_c |q_c| max_j |k_jc| on every score is the reference where it is small,
 * which it nearly always is: then no maximum is searched and no weight underflows.  Otherwise an extra pass finds the
 * largest score.  Each lane decides for itself, so that its bits do not depend on its neighbours.
 *
 * Where scores are changed before the softmax (masks, bias, softcap) or weights after it (dropout), the two products
 * are functions of their own, `score` and `add`, with online_softmax.h in between; backward `back_score` and `back_add`
 * with softmax_backward.h.
 */
#ifndef ATTN_KERNELS_SMALL_HEAD_H
#define ATTN_KERNELS_SMALL_HEAD_H

#include "base/cpu.h"
#include "kernels/tile_hook.h"

#include <stdint.h>

/* Channels are padded with zeros to 4, 8 or 16 = 4 << size. */
enum { ATTN__SMALL_HEAD_SIZES = 3, ATTN__SMALL_HEAD_MOST = 16, ATTN__SMALL_HEAD_STEP = 32 };

typedef struct attn__small_head_args {
    const float *q; /* [channels][ld] */
    float *o;       /* [channels][ld] */
    float *m, *l;   /* [width]: begin with -inf and 0, and o with 0 */
    int64_t ld;
    const float *k, *v; /* [keys][channels] */
    const float *reach; /* [channels]: the largest |k|; infinity where an element of k is not finite */
    int64_t keys;
    float *p;             /* scratch of ATTN__SMALL_HEAD_STEP x width numbers; for `score` and `add` of keys x width */
    const float *shrink;  /* `add` only, [width]: o is multiplied by it first; NULL: 1 */
    attn__tile_hook hook; /* after each step of keys */
} attn__small_head_args;

/* All queries of a head, padded to whole steps, and all its keys.  Every array is aligned to 64 bytes.  Padded queries
 * are zero and have a log-sum-exp of infinity.  The results are added to dq, dk and dv. */
typedef struct attn__small_head_backward_args {
    const float *q, *dout;    /* [queries][channels]; scores in powers of two, so q comes scaled */
    const float *lse, *delta; /* [queries]; lse in powers of two, delta = sum of dout * o */
    const float *k;           /* [keys][channels] */
    const float *kt, *vt;     /* [channels][key_ld], padded with zeros to whole widths */
    float *dq;                /* [channels][query_ld]: sum of ds * k, where ds is half the gradient of a score */
    float *dk, *dv;           /* [channels][key_ld]: sums of ds * q, p * dout */
    int64_t queries, query_ld, keys, key_ld;
    float *p, *ds, *transposed; /* room for ATTN__SMALL_HEAD_STEP x width numbers */
    int64_t query, key;         /* for `back_score` and `back_add`: the first of STEP queries and of `width` keys */
} attn__small_head_backward_args;

/* delta[head][row] = sum over the head's values of dout * o.  A row holds the values of all heads in turn. */
typedef struct attn__small_head_delta_args {
    const float *dout, *o;
    int64_t ld, rows, heads, values;
    float *delta;
    int64_t delta_ld;
} attn__small_head_delta_args;

typedef struct attn__small_head_kernel {
    attn__isa isa;
    int lanes;
    int width[ATTN__SMALL_HEAD_SIZES]; /* number of queries of one call, in whole vectors */
    void (*see[ATTN__SMALL_HEAD_SIZES])(const attn__small_head_args *args);
    /* p = scores; o = o * shrink + sum over the keys of p * v. */
    void (*score[ATTN__SMALL_HEAD_SIZES])(const attn__small_head_args *args);
    void (*add[ATTN__SMALL_HEAD_SIZES])(const attn__small_head_args *args);
    /* reach[i] = the largest |x[j]| of all j < count with j % 16 = i; NaNs are skipped. */
    void (*reach)(const float *x, int64_t count, float reach[ATTN__SMALL_HEAD_MOST]);
    void (*back[ATTN__SMALL_HEAD_SIZES])(const attn__small_head_backward_args *args);
    /* Of one square: p = scores, ds = products of dout and v; then dv += p dout, dk += ds q, dq += ds k, where p and ds
     * are weights and gradients of scores. */
    void (*back_score[ATTN__SMALL_HEAD_SIZES])(const attn__small_head_backward_args *args);
    void (*back_add[ATTN__SMALL_HEAD_SIZES])(const attn__small_head_backward_args *args);
    void (*delta)(const attn__small_head_delta_args *args);
} attn__small_head_kernel;

/* The kernel for this instruction set, or the best below it. */
const attn__small_head_kernel *attn__small_head_for(attn__isa isa);

#endif
