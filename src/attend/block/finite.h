/* SPDX-License-Identifier: MIT
 *
 * finite.h - products in which a weight of 0 must not meet NaN or infinity: 0 * NaN is NaN, and a masked key or query
 * may hold anything.  The rows of an operand that are not finite are found and, in a copy, replaced by zeros; the
 * product runs as ever, with the same bits for all others; then attn__finite_repair adds the rows that were left out,
 * pair by pair, but for the pairs that are masked or dropped.
 *
 *     if (attn__finite_clean(...)) { product of the copy; attn__finite_repair(...); }
 */
#ifndef ATTN_ATTEND_FINITE_H
#define ATTN_ATTEND_FINITE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* Copies rows of n numbers to `clean` with zeros in place of numbers that are not finite. Lists these rows in `bad`
 * [rows]; returns how many. */
int64_t attn__finite_clean(const float *x, int64_t ld, int64_t rows, int64_t n, float *clean, int64_t ld_clean,
                           int64_t *bad);

/* alive = whether a pair is attended, by its score before the softmax, and dropout cannot take its weight, ... */
static inline void attn__finite_note(const float *s, int64_t n, float masked, bool dropout, uint8_t *alive)
{
    for (int64_t i = 0; i < n; i++)
        alive[i] = s[i] != masked && s[i] != -INFINITY && !dropout;
}

/* ... or, after dropout, its weight is not 0. */
static inline void attn__finite_note_weights(const float *p, int64_t n, uint8_t *alive)
{
    for (int64_t i = 0; i < n; i++)
        alive[i] |= p[i] != 0.0f;
}

/* out[i][c] += weight(i, r) * x[r][c] for each listed row r: the terms that a product of the clean copy lacks. */
typedef struct attn__finite_sums {
    int64_t outs, channels;
    const float *w; /* weight(i, r) = w[i * w_out + r * w_row] * factor * out_factor[i] */
    /* The same index; pairs whose byte lacks `bit` are left out. NULL: pairs of weight 0 are left out. */
    const uint8_t *alive;
    uint8_t bit;
    int64_t w_out, w_row;
    float factor;
    const float *out_factor; /* NULL: all factors are 1 */
    const float *x;          /* x[r * x_row + c]: the operand with its infinities and NaNs */
    int64_t x_row;
    float *out; /* out[(out_at ? out_at[i] : i * out_row) + c * out_channel] */
    const int64_t *out_at;
    int64_t out_row, out_channel;
} attn__finite_sums;
void attn__finite_repair(const attn__finite_sums *sums, const int64_t *bad, int64_t n);

#endif
