/* SPDX-License-Identifier: MIT
 *
 * small_head.h - attention with heads of at most 16 channels. One loop computes scores, softmax and outputs.
 *
 *     o[i] += sum_j 2^(q[i] . k[j] - m[i]) v[j]     l[i] += sum_j 2^(q[i] . k[j] - m[i])
 *
 * Each lane is a query. A few vectors of queries with all their channels stay in registers during the loop over the
 * keys. With so few channels, an exponential costs as much as a product, so the online softmax avoids work:
 *
 * The reference m is a whole number.  Subtracting m from a score is exact and is part of the rounding that the
 * exponential does anyway. Every score is at most sum_c |q_c| max_j |k_jc|. This bound is the reference if it is small,
 * which is nearly always true. Then no maximum is computed and no weight underflows. Otherwise an extra pass finds the
 * largest score. Each lane decides for itself, so that its bits do not depend on other lanes.
 *
 * If scores change before the softmax (masks, bias, softcap) or weights change after it (dropout), the two products are
 * separate functions, `score` and `add`, and online_softmax.h runs in between. In the backward pass these are
 * `back_score` and `back_add`, with softmax_backward.h in between.
 */
#ifndef ATTN_KERNELS_SMALL_HEAD_H
#define ATTN_KERNELS_SMALL_HEAD_H

#include "base/cpu.h"
#include "kernels/tile_hook.h"

#include <stdint.h>

/* Channels are padded with zeros to 4 << size: 4, 8 or 16. */
enum { ATTN__SMALL_HEAD_SIZES = 3, ATTN__SMALL_HEAD_MOST = 16, ATTN__SMALL_HEAD_STEP = 32 };

typedef struct attn__small_head_args {
    const float *q; /* [channels][ld] */
    float *o;       /* [channels][ld] */
    float *m, *l;   /* [width]; at first m is -inf, and l and o are 0 */
    int64_t ld;
    const float *k, *v; /* [keys][channels] */
    const float *reach; /* [channels]: the largest |k|, or infinity if some k is not finite */
    int64_t keys;
    float *p;             /* scratch, ATTN__SMALL_HEAD_STEP x width; for `score` and `add`, keys x width */
    const float *shrink;  /* `add` only, [width]: factor of the old o; NULL: 1 */
    attn__tile_hook hook; /* called after each step of keys */
} attn__small_head_args;

/* Arguments for all queries of a head, padded to whole steps, and all its keys. All arrays are aligned to 64 bytes.
 * Padding queries are zero, and their log-sum-exp is infinity. Results are added to dq, dk and dv. */
typedef struct attn__small_head_backward_args {
    const float *q, *dout;    /* [queries][channels]; q is scaled so that scores are in base 2 */
    const float *lse, *delta; /* [queries]; lse is in base 2, and delta is the sum of dout * o */
    const float *k;           /* [keys][channels] */
    const float *kt, *vt;     /* [channels][key_ld]: transposes of k and v, padded with zeros to whole widths */
    float *dq;                /* [channels][query_ld]: sum of ds * k, where ds is half the gradient of a score */
    float *dk, *dv;           /* [channels][key_ld]: dk is the sum of ds * q, and dv the sum of p * dout */
    int64_t queries, query_ld, keys, key_ld;
    float *p, *ds, *transposed; /* scratch, each ATTN__SMALL_HEAD_STEP x width numbers */
    int64_t query, key;         /* `back_score`, `back_add`: first query and first key of the square */
} attn__small_head_backward_args;

/* Arguments of `delta`, which computes delta[head][row] = sum over the head's values of dout * o. A row has the values
 * of all heads, one head after the other. */
typedef struct attn__small_head_delta_args {
    const float *dout, *o;
    int64_t ld, rows, heads, values;
    float *delta;
    int64_t delta_ld;
} attn__small_head_delta_args;

typedef struct attn__small_head_kernel {
    attn__isa isa;
    int lanes;
    int width[ATTN__SMALL_HEAD_SIZES]; /* number of queries per call, in whole vectors */
    void (*see[ATTN__SMALL_HEAD_SIZES])(const attn__small_head_args *args);
    /* `score` writes scores to p. `add` computes o = o * shrink + sum over keys of p * v. */
    void (*score[ATTN__SMALL_HEAD_SIZES])(const attn__small_head_args *args);
    void (*add[ATTN__SMALL_HEAD_SIZES])(const attn__small_head_args *args);
    /* Sets reach[i] to the maximum of |x[j]| over all j < count with j % 16 = i. It ignores NaN. */
    void (*reach)(const float *x, int64_t count, float reach[ATTN__SMALL_HEAD_MOST]);
    void (*back[ATTN__SMALL_HEAD_SIZES])(const attn__small_head_backward_args *args);
    /* These functions process one square. `back_score` writes scores to p, and products of dout and v to ds. `back_add`
     * adds p dout to dv, ds q to dk, and ds k to dq. Before `back_add`, p must have the weights and ds the gradients of
     * scores. */
    void (*back_score[ATTN__SMALL_HEAD_SIZES])(const attn__small_head_backward_args *args);
    void (*back_add[ATTN__SMALL_HEAD_SIZES])(const attn__small_head_backward_args *args);
    void (*delta)(const attn__small_head_delta_args *args);
} attn__small_head_kernel;

/* Returns the kernel of the best instruction set that is not above `isa`. */
const attn__small_head_kernel *attn__small_head_for(attn__isa isa);

#endif
