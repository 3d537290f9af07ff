/* SPDX-License-Identifier: MIT
 *
 * few.h - one or a few queries against many keys, as in decoding: every key and value is read once, straight from the
 * caller's array, channels in the lanes.  The memory sets the pace; nothing is packed or copied.
 */
#ifndef ATTN_KERNELS_FEW_H
#define ATTN_KERNELS_FEW_H

#include "attn/attn.h"
#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

/* Rows of keys or values: element (j, c) at base[at[j] + c].  `at` goes on for ATTN__FEW_AHEAD rows, which will be
 * asked for next: a head's rows may lie pages apart, where the machine does not look ahead by itself. */
enum { ATTN__FEW_AHEAD = 48 };

typedef struct attn__few_rows {
    const void *base;
    attn_dtype dtype; /* ATTN_F32 or ATTN_BF16 */
    const int64_t *at;
    int64_t rows, channels;
    bool fetch; /* bring in the rows that follow */
} attn__few_rows;

/* out[at[j] + c] = factor * sum over i of w[i * ldw + j] * x[i * ldx + c], for j in [0, rows), c in [0, channels), of
 * those i only that have from[i] <= j < to[i]; or added to what is there. */
typedef struct attn__few_spread {
    void *out;
    attn_dtype dtype; /* ATTN_F32 or ATTN_BF16 */
    const int64_t *at;
    int64_t rows, channels, queries;
    const float *w, *x; /* x padded to whole vectors */
    int64_t ldw, ldx;
    const int64_t *from, *to;
    float factor;
    bool add;
    bool stream; /* past the caches, where a row's lines are aligned; `settle` follows before another thread looks */
} attn__few_spread;

typedef struct attn__few_kernel {
    attn__isa isa;
    int lanes;
    /* row[c] = factor * from[c], c in [0, n). */
    void (*load)(const void *from, attn_dtype dtype, int64_t n, float factor, float *row);
    /* s[i * lds + j] = sum over c of q[i * ldq + c] * k[j][c]; q padded with zeros to whole vectors, lds to whole
     * vectors of keys. */
    void (*score)(const attn__few_rows *k, const float *q, int64_t ldq, int64_t queries, float *s, int64_t lds);
    /* One step of the running softmax, in powers of two: s[0 .. count) becomes 2^(s - m).  m and l begin with -inf and
     * 0.  Returns what earlier sums are to be multiplied by. */
    float (*weigh)(float *s, int64_t count, float *m, float *l);
    /* o[c] = o[c] * shrink + sum over j in [from, to) of p[j] * v[j][c]; o padded to whole vectors. */
    void (*add)(const attn__few_rows *v, int64_t from, int64_t to, const float *p, float shrink, float *o);
    /* rows of keys as above, written. */
    void (*spread)(const attn__few_spread *args);
    void (*settle)(void);
} attn__few_kernel;

/* The kernel for this instruction set, or the best below it. */
const attn__few_kernel *attn__few_for(attn__isa isa);

#endif
