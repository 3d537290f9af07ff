/* SPDX-License-Identifier: MIT
 *
 * decode.h - attention of up to 16 queries over many keys, as in decoding with a KV cache.
 *
 *     s[i,j] = sum_c q[i,c] k[j,c]     p = 2^(s - m)     o[i] = (sum_j p[i,j] v[j]) / l[i]
 *
 * Each key and value is read once, in place, with channels in the lanes.  Nothing is packed or copied, because memory
 * bandwidth limits the speed.
 */
#ifndef ATTN_KERNELS_DECODE_H
#define ATTN_KERNELS_DECODE_H

#include "attn/attn.h"
#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

/* Rows of keys or values. Element (j, c) is base[at[j] + c]. While row j is read, row next_at[j] of `next` is
 * prefetched, because the hardware does not prefetch rows that are pages apart. next_at is padded to whole vectors. */
typedef struct attn__decode_rows {
    const void *base;
    attn_dtype dtype; /* ATTN_F32 or ATTN_BF16 */
    const int64_t *at;
    int64_t rows, channels;
    const void *next; /* base address of the rows to prefetch; NULL: none */
    const int64_t *next_at;
} attn__decode_rows;

/* Arguments of `spread`, which computes out[at[j] + c] (+)= factor * sum over i of w[i * ldw + j] * x[i * ldx + c], for
 * j in [0, rows) and c in [0, channels). The sum includes a query i only if from[i] <= j < to[i]. If `alive` is not
 * NULL, alive[i * ldw + j] must also have the bit `bit`. */
typedef struct attn__decode_spread {
    void *out;
    attn_dtype dtype; /* ATTN_F32 or ATTN_BF16 */
    const int64_t *at;
    int64_t rows, channels, queries;
    const float *w, *x; /* x is padded to whole vectors */
    int64_t ldw, ldx;
    const int64_t *from, *to;
    const uint8_t *alive;
    uint8_t bit;
    float factor;
    bool add;
    /* Use non-temporal stores for aligned rows, unless `add`. Call `settle` before other threads read them. */
    bool stream;
} attn__decode_spread;

typedef struct attn__decode_kernel {
    attn__isa isa;
    int lanes;
    /* Computes s[i * lds + j] = sum over c of q[i * ldq + c] * k[j][c]. Rows of q are padded with zeros to whole
     * vectors. Rows of s have room for whole vectors of keys. */
    void (*score)(const attn__decode_rows *k, const float *q, int64_t ldq, int64_t queries, float *s, int64_t lds);
    /* Does one step of the online softmax in base 2. s[0 .. count) has scores and becomes 2^(s - m). At first m is -inf
     * and l is 0. Returns the factor for earlier sums. */
    float (*weigh)(float *s, int64_t count, float *m, float *l);
    /* Computes weights that do not depend on other keys: sigmoids of score + bias if `squash` is set, otherwise the
     * scores in base e. Sets *m and *l to 0 and 1 if a score is not -infinity. */
    void (*separate)(float *s, int64_t count, bool squash, float bias, float *m, float *l);
    /* Computes o[c] = o[c] * shrink + sum over j in [from, to) of p[j] * v[j][c]. o is padded to whole vectors. */
    void (*add)(const attn__decode_rows *v, int64_t from, int64_t to, const float *p, float shrink, float *o);
    /* Writes the gradients of rows of keys or values; see attn__decode_spread. */
    void (*spread)(const attn__decode_spread *args);
    void (*settle)(void);
} attn__decode_kernel;

/* Returns the kernel of the best instruction set that is not above `isa`. */
const attn__decode_kernel *attn__decode_for(attn__isa isa);

#endif
